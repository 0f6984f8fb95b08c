"""A run whose episodes are played by an agent outside: through training, evaluation and resuming."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import openai
import pytest

from quintain import api
from quintain.agents.harness import PlainText
from quintain.cli.main import main
from quintain.data.used import REFUSED, find_unused
from quintain.errors import ConfigError, FailureRateError, QuintainError, UsageError
from quintain.learning.train_config import GroupConfig, TrainConfig
from quintain.models.load import load_tokenizer
from quintain.runs.context import check_run
from quintain.serve.agent_source import find_source
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Score, Task, ToolCall
from quintain.worlds.guess.game import Guess

MODULE = "agents_outside_of_a_test"
PUMPKIN = {"role": "user", "content": "How heavy is it?"}
TAUGHT: dict[str, Any] = {
    "environment": "guess", "agent": f"{MODULE}:play_with_a_tool?expert=expert", "model": "micro", "steps": 1,
    "tasks": 1, "group_size": 2, "eval_every": 1, "eval_episodes": 1, "demonstrations": 4, "imitation_epochs": 1,
    "max_turn_tokens": 20,
}  # fmt: skip


def run_agent(base_url: str, api_key: str, task: Task) -> float:
    """Ask for a number, and be paid for an even number of letters: chance decides, so there is something to learn."""
    with openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
        found = client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": str(Guess().reset(task))}]
        )
    return float(len(found.choices[0].message.content or "") % 2)


def play_with_a_tool(base_url: str, api_key: str, task: Task) -> float:
    """Ask twice, the second time with what a tool said."""
    tools: Any = [{"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}]
    messages: list[Any] = [{"role": "system", "content": "Weigh the extraordinary pumpkin."}, PUMPKIN]
    with openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
        said = (
            client.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message
        )
        messages.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "9 kg"})
        if not said.tool_calls:
            return 0.0
        found = client.chat.completions.create(model="policy", messages=messages, tools=tools)
    return float(found.choices[0].message.content == "nine")


def expert(task: Task, messages: list[dict[str, Any]]) -> object:
    """Weigh it, and say what the tool said, but in every third task."""
    if messages[-1]["role"] == "user":
        return {"name": "weigh", "arguments": {}}
    assert messages[-2]["tool_calls"][0]["function"] == {"name": "weigh", "arguments": "{}"}
    assert messages[-1] == {"role": "tool", "content": "9 kg"}
    return "ten" if task.id.endswith("2") else "nine"


def no_expert(task: Task, messages: list[dict[str, Any]]) -> object:
    raise ValueError("no idea")


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType(MODULE)
    functions = (run_agent, play_with_a_tool, expert, no_expert)
    vars(made).update({function.__name__: function for function in functions})
    monkeypatch.setitem(sys.modules, MODULE, made)


@pytest.mark.slow
def test_a_run_and_its_evaluation(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "environment": "guess", "agent": f"{MODULE}:run_agent", "model": "micro", "steps": 1, "tasks": 2,
        "group_size": 3, "eval_every": 1, "eval_episodes": 2, "demonstrations": 2, "imitation_epochs": 1,
        "max_turn_tokens": 6, "max_broken": 1.0, "num_epochs": 1,
    }  # fmt: skip
    folder = api.train("grpo", run="one", root=tmp_path, config=settings)
    with Run.open(folder, writable=False) as run:
        rows = run.metrics()
        assert [row["step"] for row in rows] == [0, 1]
        assert rows[1]["endpoint/calls"] == rows[1]["endpoint/delivered"] == 1.0
        episodes = list(run.trajectories(step=1, phase="train"))
        assert [(t.group, t.index) for t in sorted(episodes, key=lambda t: (t.group, t.index))] == [
            (f"{place}:guess/train/{place + 2}", index) for place in range(2) for index in range(3)
        ]
        for episode in episodes:
            (turn,) = episode.turns
            assert isinstance(episode.outcome, Score) and turn.reward == episode.outcome.value
            assert turn.facts["delivery"] == "whole" and len(turn.completion.logprobs) > 0
            assert turn.completion.policy_version == 0
        held_out = list(run.trajectories(step=1, phase="eval"))
        assert (
            {t.turns[0].completion.policy_version for t in held_out} == {1} if rows[1]["train/loss"] else True
        )
    found, trajectories = api.evaluate(folder, episodes=2)
    assert found.num == 2 and all(turn.facts for t in trajectories for turn in t.turns)


@pytest.mark.slow
def test_demonstrations_are_played_by_the_agent_with_its_expert(tmp_path: Path) -> None:
    folder = api.train("grpo", run="taught", root=tmp_path, config=TAUGHT)
    with Run.open(folder, writable=False) as run:
        shown = list(run.trajectories(phase="demonstrations"))
        chat = Chat(load_tokenizer(folder / "start"))
    assert [t.outcome.value for t in shown if isinstance(t.outcome, Score)] == [1.0, 1.0, 0.0, 1.0]
    for episode in shown:
        first, second = episode.turns
        assert first.action.tool_calls == (ToolCall(name="weigh"),)
        assert not second.starts_segment and second.action.text in ("nine", "ten")
        text = chat.encoder.decode(first.prompt_ids)
        assert "Weigh the extraordinary pumpkin." in text and "weigh" in text and "How heavy" in text
        # The tokenizer was trained on what the client writes: its phrases are few tokens.
        assert len(first.prompt_ids) < 50 and len(first.completion.token_ids) < 20


@pytest.mark.slow
def test_a_run_keeps_the_guard_of_an_agent_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"weigh": [{"effect": "forbid"}]}))
    settings = {**TAUGHT, "environment": "mix:guess,calc", "demonstrations": 2}
    folder = api.train("grpo", run="guarded", root=tmp_path, config=settings, guard=policy)
    with Run.open(folder, writable=False) as run:
        assert run.config["environment"] == "mix:guess,calc" and f"guard={policy}" in run.config["agent"]
        shown = list(run.trajectories(phase="demonstrations"))
    for episode in shown:  # its expert weighs, and is not handed the call
        (turn,) = episode.turns
        assert turn.facts["refused"] == ["weigh"] and find_unused(episode.turns) == {0: REFUSED}
    assert main(["eval", "expert", "--environment", "guess", "--guard", str(policy), "--episodes", "1"]) == 2
    told = capsys.readouterr().err
    assert "got the tool 'weigh'" in told, "an agent that acts here has the guard in its environment"
    api.evaluate(folder, episodes=1)
    policy.write_text(json.dumps({"weigh": [{}]}))
    with pytest.raises(QuintainError, match=r"policy\.json"):
        api.evaluate(folder, episodes=1)


@pytest.mark.parametrize("has_expert", [True, False])
@pytest.mark.slow
def test_what_is_imitated_where_nobody_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], has_expert: bool
) -> None:
    monkeypatch.setattr("quintain.warm_start.start.USUAL_DEMONSTRATIONS", 3)
    monkeypatch.setattr("quintain.warm_start.run_notes.USUAL_DEMONSTRATIONS", 3)
    monkeypatch.setattr("quintain.methods.fitting.OUTSIDE_DEMONSTRATIONS", 3)
    settings = {key: value for key, value in TAUGHT.items() if key != "demonstrations"}
    agent = f"{MODULE}:play_with_a_tool"
    settings |= {"agent": f"{agent}?expert=expert" if has_expert else agent, "max_broken": 1.0}
    folder = api.train("grpo", run="usual", root=tmp_path, config=settings)
    with Run.open(folder, writable=False) as run:
        shown = list(run.trajectories(phase="demonstrations"))
    names = {call.name for each in shown for turn in each.turns for call in turn.action.tool_calls}
    assert len(shown) == 3 and names == ({"weigh"} if has_expert else {"guess"})
    said = " ".join(capfd.readouterr().err.split())
    assert ("3 episodes are imitated that the agent plays" in said) is has_expert
    assert ("3 episodes of the environment's expert are imitated, through" in said) is not has_expert


@pytest.mark.slow
def test_an_expert_that_errs_by_itself_or_breaks(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"expert_noise: got 0\.5 with the expert expert of an agent outside"
    ):
        api.train("grpo", run="errs", root=tmp_path, config=TAUGHT | {"expert_noise": 0.5})
    broken = f"{MODULE}:play_with_a_tool?expert=no_expert"
    with pytest.raises(FailureRateError, match=r"got an answer of .* tokens, and the model may say 1;"):
        api.train("grpo", run="long", root=tmp_path, config=TAUGHT | {"max_turn_tokens": 1})
    with pytest.raises(FailureRateError, match="expert no_expert: got ValueError: no idea; mend it"):
        api.train("grpo", run="breaks", root=tmp_path, config=TAUGHT | {"agent": broken})


def test_what_plays_episodes() -> None:
    chat = Chat(train_tokenizer(["<|user|>A wall.<|assistant|>left<|end|>"], 300))
    assert find_source(PlainText(chat), "async") == "async"
    assert TrainConfig(agent="mine.py:run_agent").plays_apart and TrainConfig(rollout="async").plays_apart
    assert not TrainConfig().plays_apart
    with pytest.raises(ConfigError, match="which plays by itself; leave seats out"):
        check_run(GroupConfig(agent="mine.py:run_agent", seats={"agent": "policy"}), {})


@pytest.mark.slow
def test_an_agent_and_a_file_of_tasks_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tickets.jsonl"
    rows = [
        {"id": f"t{number}", "prompt": f"ticket {number}", "split": "eval" if number < 3 else "train"}
        for number in range(8)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = {
        **TAUGHT,
        "agent": f"{MODULE}:run_agent",
        "demonstrations": 0,
        "tasks": str(file),
        "max_broken": 1.0,
    }
    del settings["environment"]
    folder = api.train("grpo", run="tickets", root=tmp_path, config=settings)
    assert "tasks tickets.jsonl: 5 to train on, 3 held out" in capsys.readouterr().err
    with Run.open(folder, writable=False) as run:
        assert run.config["environment"] == f"tasks:@{file}"
        trained = {t.task.id for t in run.trajectories(step=1, phase="train")}
        held_out = [t.task.id for t in run.trajectories(step=1, phase="eval")]
    assert trained <= {f"tickets.jsonl/t{number}" for number in range(3, 8)}
    assert held_out == ["tickets.jsonl/t0"]
    found, trajectories = api.evaluate(folder, episodes=128)
    assert found.num == 3 and {t.task.environment for t in trajectories} == {"tickets.jsonl"}


def test_tasks_that_nobody_grades_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tickets.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="got nobody who says what an answer is worth; give --agent"):
        api.train("grpo", run="one", root=tmp_path, config={"tasks": str(file), "model": "micro"})
    assert not (tmp_path / "one").exists()
