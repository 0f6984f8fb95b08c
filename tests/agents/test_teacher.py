"""A teacher behind a chat endpoint: what it is told, how its answers are read, failures, and episodes from a tape."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_turn
from tests.engines.chat_model import KEY, ChatModel

from quintain import api
from quintain.agents.protocol import Brief
from quintain.agents.teacher import Teacher, TeacherFault
from quintain.cli.main import main
from quintain.engines.probe import QUESTION
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import TrainConfig
from quintain.processes import http_json
from quintain.store.run import Run
from quintain.types import (
    Action,
    Score,
    Task,
    ToolCall,
    ToolSpec,
    Turn,
    as_content,
)

TASK = Task(id="e/1", environment="e", seed=1, prompt="Find it.")
GUESS = ToolSpec(
    name="guess",
    description="Guess.",
    parameters={"type": "object", "properties": {"number": {"type": "integer"}}},
)
TOOLS = Brief(task=TASK, instructions="Play.", tools=(GUESS,))
LEGAL = Brief(task=TASK, instructions="Play.", legal_actions=("left", "go on"))
CALL = ToolCall(name="guess", arguments={"number": 3})


def native(**arguments: Any) -> dict[str, Any]:
    function = {"name": "guess", "arguments": json.dumps(arguments)}
    return {"content": "Let me see.", "tool_calls": [{"id": "x", "type": "function", "function": function}]}


def bisecting(body: dict[str, Any]) -> Any:
    """Play `guess` by what was said: halve what is left."""
    low, high, last = 1, 0, 0
    for message in body["messages"]:
        if message["role"] == "user":
            low, high = map(int, re.findall(r"\d+", message["content"]))
        elif message["role"] == "assistant":
            last = json.loads(message["tool_calls"][0]["function"]["arguments"])["number"]
        elif message["content"].lower().startswith("higher"):
            low = last + 1
        elif message["content"].lower().startswith("lower"):
            high = last - 1
    return native(number=(low + high) // 2)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatModel]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    made = ChatModel(lambda _: "left")
    yield made
    made.listener.close()


@pytest.fixture
def spec(model: ChatModel, tmp_path: Path) -> str:
    (tmp_path / "key").write_text(KEY)
    return f"{model.url}?model=big&key_file={tmp_path}/key"


def turn(shown: str, action: Action) -> Turn:
    return make_turn(logprob=None, shows=shown, action=action)


def test_tools_are_told_and_called_natively(model: ChatModel, spec: str) -> None:
    model.say = lambda _: native(number=3)
    teacher = Teacher.read(f"{spec}&temperature=0.5&max_tokens=64")
    turns = [
        turn("From 1 to 9.", Action(tool_calls=(CALL, CALL))),
        turn("higher\nhigher", Action(text="{", error="no")),
    ]
    assert teacher.answer(TOOLS, turns, as_content("Error: no")) == Action(tool_calls=(CALL,))
    (asked,) = model.seen
    assert (asked["temperature"], asked["max_tokens"]) == (0.5, 64)
    assert asked["tools"][0]["function"]["name"] == "guess"
    assert [message["role"] for message in asked["messages"]] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    system, _, said, first, second, *_ = asked["messages"]
    assert system["content"] == "Play.\n\nFind it."
    assert [call["id"] for call in said["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert (first["content"], second["content"]) == ("higher\nhigher", "")


def test_tools_are_told_in_words_where_the_endpoint_does_not_take_them(model: ChatModel, spec: str) -> None:
    model.say = lambda _: 'Well: <tool_call>{"name": "guess", "arguments": {"number": 3}}</tool_call>'
    teacher = Teacher.read(f"{spec}&written_tools=1")
    found = teacher.answer(TOOLS, [turn("x", Action(text="y", tool_calls=(CALL,)))], as_content("z"))
    assert found == Action(tool_calls=(CALL,))
    (asked,) = model.seen
    assert "tools" not in asked and "one JSON schema per line" in asked["messages"][0]["content"]
    assert asked["messages"][2] == {"role": "assistant", "content": "y"}
    assert asked["messages"][3] == {"role": "user", "content": "z"}


def test_a_choice_is_word_for_word(model: ChatModel, spec: str) -> None:
    said = ["I go left.", " go on\n", "right", "right"]
    model.say = lambda _: said.pop(0)
    teacher = Teacher.read(spec)
    assert teacher.answer(LEGAL, [], as_content("A wall.")) == Action(text="go on")
    assert model.seen[0]["messages"][-1]["content"] == "A wall.\nActions: left, go on"
    assert "word for word" in model.seen[0]["messages"][0]["content"]
    with pytest.raises(TeacherFault, match="not a legal action: got 'right'") as found:
        teacher.answer(LEGAL, [], as_content("A wall."))
    assert (found.value.owner, found.value.kind) == ("engine", "teacher_unreadable")


def test_words_are_an_action_where_nothing_else_is_asked_for(model: ChatModel, spec: str) -> None:
    model.say = lambda _: " It is 4. "
    teacher = Teacher.read(spec)
    plain = Brief(task=Task(id="e/1", environment="e", seed=1), instructions="")
    assert teacher.answer(plain, [], as_content("2 + 2?")) == Action(text="It is 4.")
    assert [message["role"] for message in model.seen[0]["messages"]] == ["user"]
    model.say = lambda _: native(number=3)
    with pytest.raises(TeacherFault, match="a call of guess, where there are no tools"):
        teacher.answer(plain, [], as_content("2 + 2?"))
    model.say = lambda _: 401
    with pytest.raises(TeacherFault, match="HTTP status 401") as found:
        teacher.answer(plain, [], as_content("3 + 3?"))
    assert found.value.kind == "teacher_refused"


@pytest.mark.parametrize("most", ["0", "x"])
def test_specs_that_cannot_be(spec: str, most: str) -> None:
    with pytest.raises(
        UsageError, match=f"max_tokens of teacher .*: got '{most}'; give an integer of 1 or more"
    ):
        Teacher.read(f"{spec}&max_tokens={most}")


def test_episodes_are_taught_and_repeated_from_the_tape(
    model: ChatModel, spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.say = bisecting
    tape = tmp_path / "lessons.jsonl"
    place = tmp_path / "taught"
    assert (
        main(["collect", "guess", "--agent", f"{spec}&tape={tape}", "--episodes", "6", "--out", str(place)])
        == 0
    )
    assert "6 episodes" in capsys.readouterr().out
    asked = len(model.seen)
    model.listener.close()
    found, _ = api.collect("guess", f"{spec}&tape={tape}&replays=1", episodes=6)
    assert len(model.seen) == asked > 6
    assert all(isinstance(t.outcome, Score) and t.outcome.is_success for t in found)
    with Run.open(place, writable=False) as run:
        recorded = list(run.trajectories())
    assert [[t.completion.token_ids for t in each.turns] for each in recorded] == [
        [t.completion.token_ids for t in each.turns] for each in found
    ]
    assert all(not t.completion.logprobs for t in recorded[0].turns)
    assert all(KEY.encode() not in path.read_bytes() for path in place.rglob("*") if path.is_file())


QUICK: dict[str, Any] = {
    "model": "micro", "demonstrations": 6, "imitation_epochs": 1, "steps": 1, "tasks": 2, "group_size": 2,
    "eval_every": 1, "eval_episodes": 2,
}  # fmt: skip


@pytest.mark.slow
def test_training_asks_its_teacher_first(
    model: ChatModel, spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.say = lambda body: "yes" if body["messages"][-1]["content"] == QUESTION else bisecting(body)
    folder = api.train("grpo", environment="guess", root=tmp_path, run="pupil", teacher=spec, **QUICK)
    assert f"teacher: success 100.0 % [61.0, 100.0], 6 episodes, in {tmp_path}/pupil-teacher" in (
        capsys.readouterr().err
    )
    asked = len(model.seen)
    with Run.open(tmp_path / "pupil-teacher", writable=False) as played:
        shown = [[turn.action for turn in each.turns] for each in played.trajectories()]
        assert (played.recipe, played.config["agent"]) == ("collect", spec)
    with Run.open(folder, writable=False) as run:
        imitated = [[turn.action for turn in each.turns] for each in run.trajectories(phase="demonstrations")]
        assert run.config["demonstrations"] == str(tmp_path / "pupil-teacher")
        assert run.config["teacher"] == ""
    assert imitated == shown
    with pytest.raises(UsageError, match=r"creating the run .*/pupil: got a run of that name"):
        api.train("grpo", environment="guess", root=tmp_path, run="pupil", teacher=spec, **QUICK)
    with pytest.raises(UsageError, match=r"creating the run .*/pupil-teacher: got a run of that name"):
        api.ask_teacher(
            TrainConfig(environment="guess", teacher=spec), tmp_path / "pupil-teacher", replace=False
        )
    assert len(model.seen) == asked


def test_only_training_asks_a_teacher(spec: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"teacher: got .*, which is asked by quintain train alone"):
        api.lab("grpo", environment="guess", root=tmp_path, run="lab", teacher=spec, **QUICK)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"teacher": "runs/big"}, "give the URL of a chat endpoint"),
        ({"demonstrations": "chats.jsonl"}, "with demonstrations 'chats.jsonl'; give the number"),
        ({"demonstrations": 0}, "with demonstrations 0; give the number"),
        ({"expert_noise": 0.5}, "with expert_noise 0.5, which are an expert's"),
        ({"agent": "mine.py:run_agent"}, "teach it by expert="),
    ],
)
def test_teachers_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match="teacher: got .*" + said):
        replace(TrainConfig(teacher="http://127.0.0.1:8000/v1?model=big"), **settings).check()
