"""``quintain check METHOD``: what would be trained on, and faults that it must find."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.runs import preflight
from quintain.runs.context import TrainingContext
from quintain.text.chat import Chat
from quintain.text.tokenizer import COMPACT_TEMPLATE, train_tokenizer
from quintain.types import Group, ToolSpec

Cli = Callable[..., Any]
SMALL = ["--environment", "lever.py:Lever", "--model", "micro", "--demonstrations", "0"]
WORLD = '''
import quintain


class Lever(quintain.Environment):
    """Odd and short is right."""

    max_turns = 2

    def reset(self, task):
        return "A lever."

    def step(self, action):
        is_right = sum(map(ord, action.text)) % 2 == 1 and len(action.text) < 40
        return quintain.StepResult(observation="It fell.", reward=float(is_right), is_terminated=is_right)

    def legal_actions(self):
        return ("up", "down")


class Gullible(Lever):
    """Believes whoever asks for the highest score."""

    def step(self, action):
        is_right = "highest" in action.text
        return quintain.StepResult(observation="", reward=float(is_right), is_terminated=True, is_success=is_right)


class Stuck(Lever):
    """Nothing helps."""

    def step(self, action):
        return quintain.StepResult(observation="It rolls on.")
'''


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def world(cli: Cli) -> None:
    Path("lever.py").write_text(WORLD)


def states(out: str) -> dict[str, str]:
    return {row["name"]: row["state"] for row in json.loads(out)["findings"]}


def test_a_sound_method_is_shown_and_passes(cli: Cli) -> None:
    found = cli("check", "grpo", *SMALL)
    assert found.status == 0, found.out
    assert found.out.count("--- episode ") == 3
    assert "[prompt] " in found.out and "[trained] " in found.out and "[masked]" not in found.out
    assert "tools\tskip\tnone was called" in found.out
    assert "worthless answer solves: empty 0%, na 0%, injection 0%" in found.out
    assert re.search(r"grpo: passed in \d+ s", found.out)
    assert re.search(
        r"success at the start  \d+% \[\d+, \d+\] of 32 episodes\ngroups that differ    \d+%\n", found.out
    )
    assert re.search(r"a step takes about    \d+\.\d s here, .*\nsuggestion            \w+", found.out)
    for name in (
        "episodes",
        "reward variance",
        "canary tasks",
        "modules",
        "template",
        "mask",
        "engine and learner",
        "alignment",
    ):
        assert f"{name}\tpass\t" in found.out


def test_an_answer_that_is_worth_nothing_and_is_paid_is_found(cli: Cli) -> None:
    found = cli("check", "grpo", *SMALL, "--environment", "lever.py:Gullible", "--json")
    assert states(found.out)["canary tasks"] == "fail"
    measured = json.loads(found.out)["measured"]
    assert measured["seconds"] > 0 and measured["forecast/step_seconds"] > 0


def test_a_mask_and_an_engine_that_lie_are_found(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    examined = preflight.examine_groups

    def spoiled(context: TrainingContext, groups: list[Group], **settings: Any) -> preflight.Preflight:
        def elsewhere(group: Group) -> Group:
            episodes = [
                replace(
                    t,
                    turns=tuple(
                        replace(
                            turn,
                            completion=replace(
                                turn.completion, logprobs=(-9.0,) * len(turn.completion.logprobs)
                            ),
                        )
                        for turn in t.turns
                    ),
                )
                for t in group.trajectories
            ]
            return replace(group, trajectories=tuple(episodes))

        return examined(context, [elsewhere(group) for group in groups], **settings)

    monkeypatch.setattr(preflight, "examine_groups", spoiled)
    monkeypatch.setattr(preflight, "describe_end", lambda trajectory: [0])  # pyright: ignore[reportUnknownLambdaType]
    found = cli("check", "grpo", *SMALL, "--json")
    assert found.status == 8
    assert states(found.out)["engine and learner"] == states(found.out)["mask"] == "fail"


def test_a_task_that_cannot_be_solved_has_no_variance(cli: Cli) -> None:
    found = cli("check", "grpo", *SMALL, "--environment", "lever.py:Stuck", "--json")
    assert states(found.out)["reward variance"] == "fail"
    assert "always 0: stuck/train/" in found.out


@pytest.mark.parametrize("has_role", [True, False])
def test_results_of_tools_that_become_text_of_the_user_are_told(has_role: bool) -> None:
    tokenizer = train_tokenizer(["A lever."])
    if not has_role:
        tokenizer.chat_template = COMPACT_TEMPLATE.replace(", 'tool')", ")")
    chat, spec = Chat(tokenizer), ToolSpec(name="look", description="Look.", parameters={})
    found = list(preflight.tool_results((spec,), chat))
    assert [each.name for each in found] == ([] if has_role else ["tool results"])
    assert all("no tool role: they are written into the text of the user" in each.detail for each in found)
    assert not list(preflight.tool_results((), chat))


@pytest.mark.slow
def test_a_check_says_where_results_of_tools_stand(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [*SMALL, "--environment", "guess?high=8"]
    assert "tool results" not in states(cli("check", "grpo", *small, "--json").out)
    template = COMPACT_TEMPLATE.replace(", 'tool')", ")")
    monkeypatch.setattr("quintain.text.tokenizer.COMPACT_TEMPLATE", template)
    assert "tool results\tpass\tthe template has no tool role" in cli("check", "grpo", *small).out


def test_flags_are_those_of_the_method(cli: Cli) -> None:
    assert "did you mean '--group-size'" in cli("check", "grpo", "--group-sise", "3").line


def test_data_without_an_environment_is_not_played(cli: Cli) -> None:
    Path("chats.jsonl").write_text('{"prompt": "a", "completion": "b"}')
    found = cli("check", "sft", "--demonstrations", "chats.jsonl")
    assert found.status == 2 and "look at the data: quintain check FILE" in found.line


def test_data_is_checked_for_a_model_that_a_run_would_make(cli: Cli) -> None:
    Path("chats.jsonl").write_text('{"prompt": "a door and a door", "completion": "a door and a door"}')
    phrases, words = (
        cli("check", "chats.jsonl", "--model", model, "--show", "1").out
        for model in ("tiny", "tiny?tokens=words")
    )
    assert "records\tpass\t1" in phrases and "[trained] a door and a door" in phrases
    lengths = [int(re.findall(r"median (\d+)", out)[0]) for out in (phrases, words)]
    assert lengths[0] < lengths[1], "phrases are fewer tokens than words"


@pytest.mark.slow
def test_what_a_method_of_imitation_makes_of_demonstrations_is_shown(cli: Cli) -> None:
    small = ["--environment", "guess?high=8", "--model", "micro", "--demonstrations", "6"]
    out = cli("check", "xlam", *small).out
    titles = re.findall(
        r"--- example (\d) of the data, of \d:guess/train/\d+#0: prompt, sampled and masked", out
    )
    assert titles and titles == [str(number + 1) for number in range(len(titles))]
    assert re.search(r"right_calls +6 → \d .* has no turn whose calls are right", out)
    assert out.index("--- episode 1") < out.index("--- example 1 of the data") < out.index("right_calls  ")


@pytest.mark.slow
def test_what_several_teachers_show_is_no_record_of_the_warm_start(cli: Cli) -> None:
    out = cli("check", "fireact", "--model", "micro", "--demonstrations", "4").out
    assert re.search(r"right +8 → \d ", out), "two ways on four tasks, beside the start's own demonstrations"
