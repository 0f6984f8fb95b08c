"""Trajectories in the Agent Trajectory Interchange Format: written, and read as conversations."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.build import make_episode

from quintain.data.atif import is_atif, to_atif
from quintain.data.files import FileValue
from quintain.data.messages import OpeningPrompt
from quintain.data.records import Record, read_records
from quintain.errors import DataError
from quintain.text.parse import write_tool_calls
from quintain.types import (
    Action,
    Completion,
    Failure,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    as_content,
    as_text,
)

CALL = ToolCall(name="guess", arguments={"number": 3})


SAID = write_tool_calls([CALL, CALL])


def decode(ids: Sequence[int]) -> str:
    return f"I look. {SAID}" if tuple(ids) == (1, 2) else "".join(map(str, ids))


def turn(given: tuple[int, ...], sampled: tuple[int, ...], text: str, **more: Any) -> Turn:
    fields: dict[str, Any] = {"action": Action(text="go"), **more}
    return Turn(
        observation=as_content(text),
        prompt_ids=given,
        completion=Completion(
            token_ids=sampled, logprobs=(-0.5,) * len(sampled), stop="stop", policy_version=3
        ),
        **fields,
    )


@pytest.fixture
def trajectory() -> Trajectory:
    given = [
        {"role": "system", "content": "Play."},
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": "said before"},
        {"role": "tool", "content": "an old result"},
    ]
    turns = (
        turn(
            (5, 6),
            (1, 2),
            "x",
            action=Action(tool_calls=(CALL, CALL)),
            starts_segment=True,
            facts={"given": given},
        ),
        turn((7,), (3,), "higher"),
        turn((8,), (4,), "And now?"),
    )
    return make_episode(*turns, index=2)


def read(value: Any) -> Record:
    (found,) = read_records([FileValue(file="a.jsonl", line=1, value=value)])
    return found


def test_what_is_written(trajectory: Trajectory) -> None:
    row = to_atif(trajectory, decode)
    assert is_atif(row) and row["session_id"] == "g/2"
    assert [(step["step_id"], step["source"], step["message"]) for step in row["steps"]] == [
        (1, "system", "Play."), (2, "user", "Find it."), (3, "user", "an old result"),
        (4, "agent", "I look."), (5, "agent", "3"), (6, "user", "And now?"), (7, "agent", "4"),
    ]  # fmt: skip
    called = row["steps"][3]
    assert called["tool_calls"][1] == {
        "tool_call_id": "call_4_1", "function_name": "guess", "arguments": {"number": 3},
    }  # fmt: skip
    assert called["observation"] == {"results": [{"content": "higher"}]}, "of both calls"
    metrics = row["steps"][4]["metrics"]
    assert metrics["prompt_token_ids"] == [5, 6, 1, 2, 7]
    assert (metrics["completion_token_ids"], metrics["logprobs"], metrics["prompt_tokens"]) == (
        [3],
        [-0.5],
        5,
    )
    assert row["steps"][4]["extra"] == {"policy": "policy", "policy_version": 3, "parent": 0}
    assert row["steps"][3]["extra"]["facts"]["given"][0] == {"role": "system", "content": "Play."}
    assert (row["extra"]["reward"], row["extra"]["is_success"]) == (1.0, True)
    failed = replace(trajectory, outcome=Failure(owner="judge", kind="grader", message="no"), id="9f")
    row = to_atif(failed, decode)
    assert row["session_id"] == "9f" and "reward" not in row["extra"]
    assert row["extra"]["failure"] == {"owner": "judge", "kind": "grader", "message": "no"}


def test_what_was_written_is_read_again(trajectory: Trajectory) -> None:
    record = read(json.loads(json.dumps(to_atif(trajectory, decode), default=dict)))
    assert [(m.role, as_text(m.content)) for m in record.messages] == [
        ("system", "Play."), ("user", "Find it."), ("user", "an old result"), ("assistant", "I look."),
        ("tool", "higher"), ("assistant", "3"), ("user", "And now?"), ("assistant", "4"),
    ]  # fmt: skip
    assert record.messages[3].tool_calls == (CALL, CALL)
    assert (record.fields["reward"], record.fields["task"]) == (1.0, "t")


def test_what_an_agent_is_told_begins_it_and_what_was_unusable_is_not_trained(trajectory: Trajectory) -> None:
    tool = ToolSpec(name="guess", description="Guess.", parameters={"type": "object", "properties": {}})
    unread = Action(text="3", error="no call")
    turns = (
        turn((5,), (1, 2), "Find it.", action=Action(tool_calls=(CALL,))),
        turn((7,), (3,), "x", action=unread),
    )
    row = to_atif(replace(trajectory, turns=turns), decode, told=OpeningPrompt(system="Play.", tools=(tool,)))
    record = read(json.loads(json.dumps(row, default=dict)))
    assert [m.role for m in record.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert record.tools == (tool,)
    assert [said.is_trained for said in record.said][-3:] == [None, None, False]


def test_what_others_write_is_read() -> None:
    steps: list[Any] = [
        {"step_id": 1, "source": "user", "message": "Find it."},
        {
            "step_id": 2, "source": "agent", "message": "I look.", "reasoning_content": "hm",
            "observation": {"results": [{"content": "a wall"}]},
        },
        {"step_id": 3, "source": "agent", "message": "Done."},
    ]  # fmt: skip
    record = read({"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a"}, "steps": steps})
    assert [m.role for m in record.messages] == ["user", "assistant", "user", "assistant"]
    assert as_text(record.messages[1].content) == "I look." and record.messages[1].reasoning == "hm"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"schema_version": "ATIF-v2.0"}, "a.jsonl line 1: got 'ATIF-v2.0'; give ATIF-v1.0 or a later ATIF-v1.x"),
    ({"schema_version": "ATIF-v1.0"}, "got steps of type NoneType; give a list of objects"),
    ({"schema_version": "ATIF-v1.0", "steps": [3]}, "got steps of type int"),
    ({"schema_version": "ATIF-v1.0", "steps": [{"source": "robot"}]}, "got a step of 'robot'"),
    (
        {"schema_version": "ATIF-v1.0", "steps": [{"step_id": 1, "source": "agent", "tool_calls": [{}]}]},
        "got a step 1 that cannot be read (KeyError: 'tool_call_id')",
    ),
]


@pytest.mark.parametrize(("value", "told"), WRONG)
def test_what_cannot_be_read(value: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError) as found:
        read(value)
    assert told in str(found.value)
