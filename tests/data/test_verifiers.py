"""Rollouts of verifiers: written, read as conversations, and equal after a round trip."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.build import make_episode, make_turn

from quintain.data.files import FileValue
from quintain.data.messages import OpeningPrompt, to_record
from quintain.data.records import Record, read_records
from quintain.data.verifiers import to_rollout
from quintain.errors import DataError
from quintain.types import (
    Action,
    Completion,
    Score,
    Stop,
    Task,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    as_text,
)

CALL = ToolCall(name="guess", arguments={"number": 3})
WRITTEN = '<tool_call>{"name": "guess", "arguments": {"number": 3}}</tool_call>'
TOLD = OpeningPrompt(
    system="Play.",
    tools=(
        ToolSpec(
            name="guess",
            description="Guess.",
            parameters={"type": "object", "properties": {"number": {"type": "integer"}}},
        ),
    ),
)
SAID = {2: WRITTEN, 3: "nonsense", 4: WRITTEN + WRITTEN, 5: "done"}


def decode(ids: Sequence[int]) -> str:
    return SAID[ids[0]]


def turn(shown: str, given: tuple[int, ...], sampled: int, action: Action, **more: Any) -> Turn:
    return make_turn(
        shows=shown,
        prompt=given,
        action=action,
        completion=Completion(
            token_ids=(sampled,),
            logprobs=(-0.5,),
            stop="length" if sampled == 5 else "stop",
            policy_version=3,
        ),
        **more,
    )


@pytest.fixture
def trajectory() -> Trajectory:
    turns = (
        turn("Find it.", (7, 8), 2, Action(tool_calls=(CALL,)), starts_segment=True, reward=0.5),
        turn("higher", (9,), 3, Action(text="nonsense", error="no call")),
        turn("Error: no call", (9,), 4, Action(tool_calls=(CALL, CALL))),
        turn("lower\nlower", (6,), 5, Action(text="done")),
    )
    return make_episode(
        *turns,
        task=Task(id="guess/train/3", environment="guess", seed=4),
        outcome=Score(value=0.75, is_success=True),
        stop=Stop.MAX_TURNS,
        index=2,
        id="e1",
        seconds=1.5,
    )


def read(value: Any) -> list[Record]:
    return list(read_records([FileValue(file="results.jsonl", line=1, value=json.loads(json.dumps(value)))]))


def said_of(record: Record) -> list[tuple[str, str, int, bool | None]]:
    return [
        (said.message.role, as_text(said.message.content), len(said.message.tool_calls), said.is_trained)
        for said in record.said
    ]


def test_a_row_is_as_verifiers_writes_it(trajectory: Trajectory) -> None:
    row = to_rollout(trajectory, decode, told=TOLD, example=7)
    assert (row["example_id"], row["reward"], row["error"], row["is_completed"]) == (7, 0.75, None, True)
    assert (row["stop_condition"], row["is_truncated"]) == ("max_turns", True)
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert [message["role"] for message in row["completion"]] == [
        "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    (call,) = map(json.loads, row["completion"][0]["tool_calls"])
    assert call == {"id": row["completion"][1]["tool_call_id"], "name": "guess", "arguments": '{"number": 3}'}
    assert row["tool_defs"][0]["parameters"]["type"] == "object"
    assert row["info"] == {
        "task": "guess/train/3", "environment": "guess", "split": "train", "seed": 4, "group": "g", "index": 2,
    }  # fmt: skip
    first, second, *_, last = row["trajectory"]
    assert (first["tokens"]["prompt_ids"], first["tokens"]["completion_ids"]) == ([7, 8], [2])
    assert second["tokens"]["prompt_ids"] == [7, 8, 2, 9] and second["tokens"]["prompt_mask"] == [0] * 4
    assert second["prompt"] == [*row["prompt"], *row["completion"][:2]]
    assert (last["is_truncated"], first["is_truncated"], first["reward"]) == (True, False, 0.5)
    assert last["tokens"]["completion_logprobs"] == [-0.5] and last["extras"]["policy_version"] == 3
    assert row["token_usage"] == {"input_tokens": 8.0, "output_tokens": 4.0}


def test_a_round_trip_gives_the_conversation_that_messages_give(trajectory: Trajectory) -> None:
    (back,) = read(to_rollout(trajectory, decode, told=TOLD, example=0))
    (usual,) = read(to_record(trajectory, decode, told=TOLD))
    assert back.said == usual.said and back.tools == usual.tools
    assert [back.fields[key] for key in ("task", "reward", "is_success")] == [
        usual.fields[key] for key in ("task", "reward", "is_success")
    ]
    assert said_of(back)[4] == ("assistant", "nonsense", 0, False)


def rollout(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "example_id": 1, "prompt": "2 + 2?", "completion": [{"role": "assistant", "content": "4"}], "reward": 1.0,
        "answer": "4", "is_completed": True,
    }  # fmt: skip
    return row | changes


def test_rows_of_others() -> None:
    (found,) = read(rollout())
    assert said_of(found) == [("user", "2 + 2?", 0, None), ("assistant", "4", 0, None)]
    assert found.fields["is_success"] is True and found.fields["answer"] == "4"
    (found,) = read(rollout(completion="4", reward=0.0))
    assert found.fields["is_success"] is False
    shots = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "1"}]
    (found,) = read(rollout(prompt=[*shots, {"role": "user", "content": "2?"}]))
    assert [each[3] for each in said_of(found)] == [None, False, None, None]
    (found,) = read(rollout(oai_tools=[{"type": "function", "function": {"name": "guess"}}], tool_defs=None))
    assert [tool.name for tool in found.tools] == ["guess"]


def test_a_rollout_that_broke_is_not_trained_and_not_lost() -> None:
    error = {"error": "ToolError", "error_chain_repr": "…", "error_chain_str": "…"}
    for completion in (None, [], [{"role": "assistant", "content": "4"}]):
        (found,) = read(rollout(completion=completion, error=error))
        assert said_of(found)[-1][0] == "assistant" and said_of(found)[-1][3] is False
        assert found.fields["is_success"] is False


def node(parent: int | None, role: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "parent": parent,
        "message": {"role": role, "content": text},
        "sampled": role == "assistant",
        "token_ids": [1],
        "mask": [role == "assistant"],
        **more,
    }


@pytest.fixture
def trace() -> dict[str, Any]:
    call = {"id": "a", "type": "function", "name": "guess", "arguments": '{"number": 3}'}
    calling = node(1, "assistant", "")
    calling["message"] |= {"content": None, "tool_calls": [call], "reasoning_content": "Hm."}
    result = node(2, "tool", "higher")
    result["message"]["tool_call_id"] = "a"
    tools = [{"type": "function", "name": "guess", "description": "Guess.", "parameters": {"type": "object"}}]
    return {
        "version": 1,
        "id": "t1",
        "task": {"type": "Guess", "data": {"idx": 3, "prompt": "Find it."}, "key": None},
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": [
            node(None, "system", "Play.", tools=tools),
            node(0, "user", "Find it."),
            calling,
            result,
            node(3, "assistant", "four"),
            node(3, "assistant", "five"),
        ],
        "rewards": {"right": {"score": 1.0, "weight": 0.5}, "speed": None},
        "errors": [],
        "ok": True,
    }


def test_every_path_of_a_trace_is_a_conversation(trace: dict[str, Any]) -> None:
    episode = {"id": "e", "env": {"id": "guess"}, "task": trace["task"], "traces": [trace], "ok": True}
    first, second = read(episode)
    assert said_of(first) == [
        ("system", "Play.", 0, None),
        ("user", "Find it.", 0, None),
        ("assistant", "", 1, None),
        ("tool", "higher", 0, None),
        ("assistant", "four", 0, None),
    ]
    assert first.messages[2].reasoning == "Hm."
    assert [each[3] for each in said_of(second)] == [None, None, False, None, None]
    assert said_of(second)[-1][1] == "five"
    assert (first.fields["reward"], first.fields["is_success"], first.fields["task"]) == (0.5, True, "3")
    assert [tool.name for tool in first.tools] == ["guess"]
    assert [record.said for record in read(trace)] == [first.said, second.said]


@pytest.mark.parametrize(
    "change", [{"agent": {"trainable": False}}, {"errors": [{"type": "ToolError", "message": "no"}]}]
)
def test_of_others_and_of_what_broke_nothing_is_trained(
    trace: dict[str, Any], change: dict[str, Any]
) -> None:
    for record in read(trace | change):
        assert all(each[3] is False for each in said_of(record) if each[0] == "assistant")
        assert record.fields["is_success"] is False


def test_what_was_never_scored_has_no_reward(trace: dict[str, Any]) -> None:
    trace["nodes"] = trace["nodes"][:2]
    trace["rewards"] = {"right": None}
    (found,) = read(trace)
    assert "reward" not in found.fields and "is_success" not in found.fields
    assert said_of(found)[-1] == ("assistant", "(no answer)", 0, False)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "got a trace of version 2; give version 1 or older"),
        ({"nodes": [{"parent": None}]}, r"cannot be read \(KeyError"),
        ({"nodes": [node(0, "user", "x"), node(2, "user", "x"), node(None, "user", "x")]}, "with the parent"),
    ],
)
def test_traces_that_cannot_be_read(trace: dict[str, Any], change: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        read(trace | change)
    with pytest.raises(DataError, match=r"results\.jsonl.*cannot be read"):
        read(rollout(completion=[{"role": "assistant", "tool_calls": ["{"]}]))
