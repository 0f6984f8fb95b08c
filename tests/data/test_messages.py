import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.data.messages import read_messages, to_record, write_messages
from quintain.errors import DataError
from quintain.types import Action, Failure, ToolCall, Trajectory, as_text

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
    assert to_record(made, decode_with_call, system="Be brief.") == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "observation 0"},
            {
                "role": "assistant",
                "content": "2 3",
                "tool_calls": [{"type": "function", "function": {"name": "go", "arguments": '{"to": "é"}'}}],
            },
            {"role": "tool", "content": "observation 1"},
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


def test_what_is_written_is_read_back(trajectory: Make) -> None:
    made = with_calls(
        trajectory([((1,), (2, 3)), ((4,), (5,))]), ToolCall(name="go", arguments={"to": [1, None]})
    )
    lines = list(write_messages([made, made], decode_with_call))
    first, second = read_messages([lines[0], "\n", lines[1]])
    assert (first.line, second.line) == (1, 3)
    assert [m.role for m in first.messages] == ["user", "assistant", "tool", "assistant"]
    assert first.messages[1].tool_calls == (ToolCall(name="go", arguments={"to": [1, None]}),)
    assert as_text(first.messages[1].content) == "2 3"
    assert first.fields == {"task": "t", "reward": 1.0, "is_success": True}


def test_sharegpt_and_content_parts() -> None:
    sharegpt = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}], "id": 4}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    calls = [{"name": "look", "arguments": {"at": 1}}, {"function": {"name": "go"}}]
    messages = {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "tool_calls": calls}]}
    first, second = read_messages([json.dumps(sharegpt), json.dumps(messages)])
    assert [(m.role, as_text(m.content)) for m in first.messages] == [("user", "hi"), ("assistant", "ho")]
    assert first.fields == {"id": 4}
    assert as_text(second.messages[0].content) == "ab" and as_text(second.messages[1].content) == ""
    assert second.messages[1].tool_calls == (ToolCall(name="look", arguments={"at": 1}), ToolCall(name="go"))


GOOD = '{"messages": [{"role": "assistant", "content": "x"}]}'


def message(**entry: object) -> str:
    return json.dumps({"messages": [entry, {"role": "assistant", "content": "x"}]})


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "got no JSON"),
        ("[" * 100_000, "got no JSON"),
        ("[1]", "got list instead of an object"),
        ("{}", r"got the keys \[\]"),
        ('{"messages": [], "conversations": []}', "either messages or conversations"),
        ('{"messages": 3}', "messages of type int"),
        ('{"messages": [3]}', "got int instead of an object"),
        ('{"messages": []}', "no assistant message"),
        ('{"messages": [{"role": "assistant", "content": " "}]}', "no assistant message"),
        (message(role="robot", content="x"), "the role 'robot'; choose from system"),
        (message(role=["user"], content="x"), "the role"),
        (message(content="x"), "the role None"),
        (message(role="user"), "the content None"),
        (message(role="user", content=5), "the content 5"),
        (message(role="user", content=[{"type": "image"}]), "the content"),
        (message(role="user", content=["x"]), "got str instead of an object"),
        (message(role="user", content="x", tool_calls=[{"name": "a"}]), "to the assistant only"),
        (message(role="assistant", tool_calls={"name": "a"}), "give a list"),
        (message(role="assistant", tool_calls=["a"]), "got str instead"),
        (message(role="assistant", tool_calls=[{"name": ""}]), "the tool name ''"),
        (
            message(role="assistant", tool_calls=[{"name": "a", "arguments": "{"}]),
            "tool arguments that are no JSON",
        ),
        (message(role="assistant", tool_calls=[{"name": "a", "arguments": "[]"}]), "got list instead"),
        ('{"conversations": [{"from": "robot", "value": "x"}]}', "the role 'robot'"),
        ('{"conversations": [{"from": "gpt"}]}', "the content None"),
    ],
)
def test_a_bad_line_is_named(line: str, error: str) -> None:
    with pytest.raises(DataError, match=error) as raised:
        read_messages([GOOD, line], source="file.jsonl")
    assert str(raised.value).startswith("file.jsonl line 2: ") and "\n" not in str(raised.value)


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(DataError, match=r"conversations of x.jsonl: got none"):
        read_messages(["", "  \n"], source="x.jsonl")


@given(st.text())
def test_any_text_is_read_or_refused(line: str) -> None:
    try:
        read_messages([line])
    except DataError as error:
        assert str(error)


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
