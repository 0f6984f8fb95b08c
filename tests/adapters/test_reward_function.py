"""Reward functions as other trainers have them score answers to the tasks of a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.adapters.reward_function.environment import Answers, read_score
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, advance, begin
from quintain.environments.tools import GraderFault
from quintain.errors import DataError, UsageError
from quintain.types import Action, Score, StepResult

REWARDS = '''
import numpy as np


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """verl"""
    right = solution_str.strip().endswith(ground_truth)
    return {"score": float(right), "long": len(solution_str), "who": data_source, "index": extra_info["index"]}


def right(completions, solution, **kwargs):
    """TRL"""
    return [float(text == each) for text, each in zip(completions, solution)]


def polite(completions, **kwargs):
    """TRL, of messages"""
    return [1.0 if "please" in each[0]["content"] else 0.0 for each in completions]


def reward_func(queries, prompts, labels):
    """OpenRLHF"""
    return np.array([float(query == prompt + label) for query, prompt, label in zip(queries, prompts, labels)])


class Right:
    """ms-swift"""

    def __call__(self, completions, solution, **kwargs):
        return right(completions, solution)


def grade(task, answer):
    return answer == task.data["solution"]


def broken(completions, **kwargs):
    raise KeyError("gold")


def nothing(completions, **kwargs):
    return [None]


def wrong(text):
    return 1.0


value = 3
'''
VERL = [
    {
        "data_source": "sums",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{n} and {n}?"}],
        "reward_model": {"style": "rule", "ground_truth": str(2 * n)},
        "extra_info": {"index": n},
    }
    for n in range(12)
]
PLAIN = [{"prompt": f"{n} and {n}?", "solution": str(2 * n)} for n in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rewards.py").write_text(REWARDS)
    for name, rows in (("verl", VERL), ("plain", PLAIN)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def build_world(folder: Path, function: str, tasks: str = "plain", options: str = "") -> Environment:
    return find(
        f"tasks:reward-function/{folder / 'rewards.py'}:{function}{options}@{folder / f'{tasks}.jsonl'}"
    )()


def answer(world: Environment, text: str, index: int = 0) -> StepResult:
    begin(world, world.task("train", index))
    return advance(world, Action(text=text))


def test_a_function_of_verl_gets_what_its_rows_have(folder: Path) -> None:
    world = build_world(folder, "compute_score", "verl")
    task = world.task("train", 0)
    number = task.data["extra_info"]["index"]
    assert begin(world, task) == f"Be brief.\n\n{number} and {number}?"
    found = advance(world, Action(text=f"It is {2 * number}"))
    assert (found.reward, found.is_success, found.is_terminated) == (1.0, True, True)
    assert found.reward_terms == {"long": float(len(f"It is {2 * number}")), "index": float(number)}
    assert answer(world, "no").reward == 0.0 and answer(world, "no").is_success is False


@pytest.mark.parametrize("function", ["right", "reward_func", "Right", "grade"])
def test_functions_of_others_and_of_ours(folder: Path, function: str) -> None:
    world = build_world(folder, function)
    solution = world.task("train", 3).data["solution"]
    assert answer(world, solution, 3).reward == 1.0 and answer(world, f"{solution}?", 3).reward == 0.0
    assert world.instructions() == "" and world.max_turns == 1


def test_where_prompts_are_messages_completions_are(folder: Path) -> None:
    assert answer(build_world(folder, "polite", "verl"), "please wait").reward == 1.0
    assert answer(build_world(folder, "right", options="?success=2"), "x").is_success is False


@pytest.mark.parametrize(
    ("function", "message"),
    [("broken", "got KeyError: 'gold'; mend it"), ("nothing", "got \\[None\\]; give a finite number")],
)
def test_what_a_function_cannot_say_is_no_score(folder: Path, function: str, message: str) -> None:
    with pytest.raises(GraderFault, match=message):
        answer(build_world(folder, function), "x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rewards.py:wrong", r"got a function of \(text\); give one of \(data_source, solution_str"),
        ("rewards.py:value", "got a int; name a function"),
        ("rewards.py:rigth", "did you mean 'right'"),
        ("rewards.py", "name it as reward-function/FILE.py:function"),
        ("nothing.py:f", "there is no file"),
    ],
)
def test_what_is_no_reward_function_is_refused(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Answers(str(folder / name))


def test_without_a_file_there_are_no_tasks(folder: Path) -> None:
    with pytest.raises(UsageError, match="got no tasks; give them as a file, --tasks FILE"):
        Answers(f"{folder / 'rewards.py'}:right").task("train", 0)


@pytest.mark.parametrize(
    "given", [1, True, 1.0, [1.0], {"reward": 1, "form": 1}, Score(value=1.0, is_success=True)]
)
def test_scores_come_in_many_shapes(given: Any) -> None:
    assert read_score(given, "x")[0] == 1.0


@pytest.mark.parametrize("given", ["1", None, [1, 2], float("nan"), {"points": 1}])
def test_what_is_no_number_is_said(given: Any) -> None:
    with pytest.raises(GraderFault, match="give a finite number, a list of one, or a dictionary with score"):
        read_score(given, "x")


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "a"),
        ([{"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}], None),
        ([{"role": "user", "content": [{"type": "image"}]}], None),
        (["a"], None),
        ([], None),
    ],
)
def test_prompts_that_are_messages(folder: Path, messages: list[Any], prompt: str | None) -> None:
    rows = [{"messages": messages, "solution": "1"}, *PLAIN]
    (folder / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if prompt is None:
        with pytest.raises(DataError, match=r"give a text, or messages of system and user|without prompt"):
            build_world(folder, "right", "mixed")
    else:
        world = build_world(folder, "right", "mixed")
        assert any(world.task(split, n).prompt == prompt for split in ("train", "eval") for n in range(13))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
