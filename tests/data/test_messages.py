import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from quintain.data.files import read_lines
from quintain.data.messages import OpeningPrompt, to_record, write_messages
from quintain.data.records import read_records
from quintain.types import Action, Failure, ToolCall, ToolSpec, Trajectory

Make = Callable[..., Trajectory]


def decode(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


def decode_with_call(ids: Sequence[int]) -> str:
    return f"{decode(ids)}<tool_call>x</tool_call>" if ids == (2, 3) else decode(ids)


def with_calls(made: Trajectory, *calls: ToolCall) -> Trajectory:
    first = replace(made.turns[0], action=Action(text="x", tool_calls=calls))
    return replace(made, turns=(first, *made.turns[1:]))


def test_a_trajectory_as_messages(trajectory: Make) -> None:
    made = with_calls(trajectory([((1,), (2, 3)), ((4,), (5,))]), ToolCall(name="go", arguments={"to": "é"}))
    assert to_record(made, decode_with_call, told=OpeningPrompt(system="Be brief.")) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "observation 0"},
            {
                "role": "assistant",
                "content": "2 3",
                "tool_calls": [
                    {
                        "id": "call_0_0",
                        "type": "function",
                        "function": {"name": "go", "arguments": '{"to": "é"}'},
                    }
                ],
            },
            {"role": "tool", "content": "observation 1", "tool_call_id": "call_0_0"},
            {"role": "assistant", "content": "5"},
        ],
        "task": "t",
        "reward": 1.0,
        "is_success": True,
    }


def test_a_failure_has_no_reward(trajectory: Make) -> None:
    made = trajectory([((1,), (2,))], outcome=Failure(owner="tool", kind="k", message="m"))
    record = to_record(made, decode)
    assert "reward" not in record and record["messages"][0]["role"] == "user"


@pytest.mark.parametrize(
    ("said", "beside"),
    [
        ('Hm.\n<tool_call>\n{"name": "go"}\n</tool_call>', "Hm."),
        ('<tool_call>{"name": "go"}</tool_call> and\n<tool_call>{"name": "go"}', "and"),
        ('[TOOL_CALLS][{"name": "go"}]', ""),
        ('Well: <|python_tag|>{"name": "go"}', "Well:"),
        ("<function=go>{}</function>", ""),
    ],
)
def test_calls_stand_in_the_text_or_beside_it_and_never_in_both(
    trajectory: Make, said: str, beside: str
) -> None:
    made = trajectory([((1,), (2,)), ((3,), (4,))])
    calls = (ToolCall(name="go", arguments={}),)
    turns = tuple(replace(turn, action=Action(text="x", tool_calls=calls)) for turn in made.turns)
    messages = to_record(replace(made, turns=turns), lambda ids: said)["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert [m["content"] for m in messages[1::2]] == [beside] * 2
    assert all(m["tool_calls"][0]["function"]["name"] == "go" for m in messages[1::2])


def test_calls_in_words_stay_words(trajectory: Make) -> None:
    made = trajectory([((1,), (2,)), ((3,), (4,))])
    calls = (ToolCall(name="go", arguments={}),)
    turns = tuple(replace(turn, action=Action(text="x", tool_calls=calls)) for turn in made.turns)
    messages = to_record(replace(made, turns=turns), lambda ids: "Thought: on\nAction: go[{}]")["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2
    assert all("tool_calls" not in m and m["content"].endswith("Action: go[{}]") for m in messages[1::2])


def test_what_is_written_is_read_back_with_tools_and_weights(trajectory: Make) -> None:
    made = with_calls(
        trajectory([((1,), (2, 3)), ((4,), (5,))]), ToolCall(name="go", arguments={"to": [1, None]})
    )
    unread = replace(made.turns[1], action=Action(text="x", error="cannot be read"))
    made = replace(made, turns=(made.turns[0], unread))
    told = OpeningPrompt(
        system="Go.", tools=(ToolSpec(name="go", description="Go on.", parameters={"type": "object"}),)
    )
    lines = list(write_messages([made, made], decode_with_call, told=lambda _: told))
    first, second = read_records(read_lines(lines, "f.jsonl"))
    assert (first.line, second.line) == (1, 2) and first.tools == told.tools
    assert [m.role for m in first.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert first.messages[2].tool_calls == made.turns[0].action.tool_calls
    assert [said.is_trained for said in first.said] == [None, None, None, None, False]
    assert first.fields == {"task": "t", "reward": 1.0, "is_success": True}
    assert list(write_messages([made], decode)) == [json.dumps(to_record(made, decode)) + "\n"]
