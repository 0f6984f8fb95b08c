"""What is learned from a file comes out of the run as it went in, in every format."""

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from tests.build import make_episode, make_turn
from tests.cli.test_shapes import MASKED, PARALLEL

from quintain.agents.transcripts import Rules, Transcriber
from quintain.data.atif import to_atif
from quintain.data.files import FileValue
from quintain.data.messages import UNTOLD, find_conversation, paths_of, to_record, write_messages
from quintain.data.records import Record, read_record, read_records
from quintain.data.verifiers import to_rollout
from quintain.store.codec import decode, encode
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import (
    Action,
    CallResult,
    Failure,
    Score,
    Text,
    ToolCall,
    Trajectory,
    Turn,
    as_text,
)

THINKS = {
    "messages": [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "one?"},
        {"role": "assistant", "content": "1", "reasoning_content": "It is one.", "weight": 0},
        {"role": "user", "content": "two?"},
        {"role": "assistant", "content": "2", "reasoning_content": "Then two.", "weight": 1},
        {"role": "user", "content": "three?"},
        {"role": "assistant", "content": "3"},
    ],
    "topic": "numbers",
    "reward": 0.5,
}
ROWS = {**PARALLEL, **MASKED, "reasoning": THINKS}


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(train_tokenizer(["one two three Rome Oslo sun snow Weather weather city Look."]))


def read(value: Any) -> Record:
    (record,) = read_records(
        [FileValue(file="f.jsonl", line=3, value=json.loads(json.dumps(value, default=dict)))]
    )
    return record


def told(record: Record) -> list[Any]:
    return [
        (m.role, as_text(m.content), m.reasoning, m.tool_calls, [bool(c.id) for c in m.tool_calls], m.name)
        for m in record.messages
    ]


def trained(record: Record) -> list[bool]:
    return [each.is_trained is not False for each in record.said if each.message.role == "assistant"]


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("form", ["messages", "atif", "verifiers"])
def test_what_went_in_comes_out(chat: Chat, shape: str, form: str) -> None:
    before = read(ROWS[shape])
    made = Transcriber(chat, Rules()).trajectory(before)
    assert made is not None
    learned = decode(encode(made))
    if form == "messages":
        (line,) = write_messages([learned], chat.text)
        row = json.loads(line)
        results = [m for m in row["messages"] if m["role"] == "tool"]
        assert all(m["tool_call_id"] for m in results)
        plain = {key: value for key, value in before.fields.items() if isinstance(value, str | int | float)}
        assert {key: value for key, value in row.items() if key not in ("messages", "tools")} == plain
    elif form == "atif":
        row = to_atif(learned, chat.text)
    else:
        row = to_rollout(learned, chat.text, told=UNTOLD, example=0)
        assert len(row["trajectory"]) == len(made.turns)
    after = read(row)
    calls = [call for m in before.messages for call in m.tool_calls]
    assert [(r, t, th, c, n) for r, t, th, c, _, n in told(after)] == [
        (r, t, th, c, n) for r, t, th, c, _, n in told(before)
    ]
    assert all(has for *_, ids, _ in told(after) for has in ids) or not calls
    assert (after.tools, trained(after)) == (before.tools, trained(before))
    again = Transcriber(chat, Rules()).trajectory(after)
    assert again is not None and [t.completion.token_ids for t in again.turns] == [
        t.completion.token_ids for t in made.turns
    ]


def test_an_episode_that_was_cut_is_no_longer_its_conversation(chat: Chat) -> None:
    made = Transcriber(chat, Rules()).trajectory(read(THINKS))
    assert made is not None and find_conversation(made) is not None
    assert find_conversation(replace(made, turns=made.turns[:1])) is None


def turn(answer: int, observation: Any, *, calls: tuple[ToolCall, ...] = (), **facts: Any) -> Turn:
    return make_turn(
        (answer,),
        logprob=0.0,
        shows=observation if isinstance(observation, tuple) else (Text(text=observation),),
        prompt=(answer,),
        action=Action(text=f"said {answer}", tool_calls=calls),
        facts=facts,
    )


def say(calls: Collection[int] = ()) -> Callable[[Any], str]:
    return lambda ids: f"said {ids[0]}" + "<tool_call>{}</tool_call>" * (ids[0] in calls)


SOLVED = Score(value=1.0, is_success=True)


def episode(*turns: Turn, outcome: Any = SOLVED) -> Trajectory:
    return make_episode(*turns, outcome=outcome)


def test_each_result_of_several_calls_is_a_message_of_its_own() -> None:
    calls = (ToolCall(name="a"), ToolCall(name="b"))
    results = (CallResult(text="1", call=0), CallResult(text="2", call=1), Text(text="!"))
    made = episode(turn(5, "go", calls=calls), turn(6, results))
    rows = to_record(made, say({5}))["messages"]
    assert [(m["role"], m["content"], m.get("tool_call_id")) for m in rows] == [
        ("user", "go", None), ("assistant", "said 5", None), ("tool", "1", "call_0_0"), ("tool", "2!", "call_0_1"),
        ("assistant", "said 6", None),
    ]  # fmt: skip
    record = read_record({"messages": rows}, FileValue(file="f", line=1, value=None))
    assert [m.name for m in record.messages if m.role == "tool"] == ["a", "b"]
    atif = to_atif(made, say({5}))
    assert [r["source_call_id"] for r in atif["steps"][1]["observation"]["results"]] == [
        "call_2_0",
        "call_2_1",
    ]


def test_traffic_that_nobody_scored_is_messages() -> None:
    given = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    seen: dict[str, Any] = {"delivery": "whole", "version": 1}
    calls = (ToolCall(name="a", id="x"), ToolCall(name="b", id="y"))
    results = [{"role": "tool", "content": k, "tool_call_id": k} for k in "yx"]
    first = replace(turn(5, "Be brief.\ngo", calls=calls, given=given, **seen), starts_segment=True)
    made = episode(
        first,
        turn(6, "y\nx", given=results, **seen),
        outcome=Failure(owner="environment", kind="not_scored", message=""),
    )
    (line,) = write_messages([made], say({5}))
    row = json.loads(line)
    assert [(m["role"], m["content"], m.get("tool_call_id")) for m in row["messages"]] == [
        ("system", "Be brief.", None), ("user", "go", None), ("assistant", "said 5", None),
        ("tool", "y", "y"), ("tool", "x", "x"), ("assistant", "said 6", None),
    ]  # fmt: skip
    assert "reward" not in row and "weight" not in row["messages"][-1]
    assert [as_text(m.content) for m in read(row).messages if m.role == "tool"] == ["x", "y"]


def test_every_way_through_recorded_calls_is_a_conversation_and_what_they_share_is_trained_once() -> None:
    seen: dict[str, Any] = {"delivery": "whole", "version": 1}
    begun = replace(turn(5, "go", **seen), starts_segment=True)
    one = turn(6, "left", **seen)
    other = replace(turn(7, "right", **seen), prompt_ids=(5, 5, 7), starts_segment=True)
    lost = replace(turn(8, "lost", delivery="broken", version=1), prompt_ids=(5, 5, 8), starts_segment=True)
    ways = list(paths_of(episode(begun, one, other, lost)))
    assert [([t.completion.token_ids[0] for t in way.turns], untrained) for way, untrained in ways] == [
        ([5, 6], set()), ([5, 7], {0}), ([5, 8], {0, 1}),
    ]  # fmt: skip
    lines = [json.loads(line)["messages"] for line in write_messages([episode(begun, one, other)], say())]
    assert [[m.get("weight") for m in rows if m["role"] == "assistant"] for rows in lines] == [
        [None] * 2,
        [0, None],
    ]
