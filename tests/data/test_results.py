"""Results of tools stand in the order of their calls, and an id without a call is refused."""

from typing import Any

import pytest

from quintain.data.files import FileValue
from quintain.data.messages import message_rows
from quintain.data.records import Record, read_record
from quintain.errors import DataError
from quintain.types import as_text


def call(id: str | None, name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": "{}"}} | ({"id": id} if id else {})


def result(text: str, id: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text, **more} | ({"tool_call_id": id} if id else {})


def read(calls: list[dict[str, Any]], results: list[dict[str, Any]], *rest: dict[str, Any]) -> Record:
    asks = {"role": "assistant", "content": None, "tool_calls": calls}
    value = {"messages": [{"role": "user", "content": "go"}, asks, *results, *rest]}
    return read_record(value, FileValue(file="f.jsonl", line=3, value=value))


DONE = {"role": "assistant", "content": "done"}
CALLS = [call("1", "track"), call("2", "book"), call("3", "book")]


def told(record: Record) -> list[tuple[str, str, str]]:
    return [(as_text(m.content), m.tool_call_id, m.name) for m in record.messages if m.role == "tool"]


def test_results_take_the_order_of_their_calls() -> None:
    record = read(CALLS, [result("c", "3"), result("a", "1"), result("b", "2")], DONE)
    assert told(record) == [("a", "1", "track"), ("b", "2", "book"), ("c", "3", "book")]
    assert [each.id for each in record.messages[1].tool_calls] == ["1", "2", "3"]


def test_results_without_ids_go_by_their_tools_and_then_by_their_places() -> None:
    nameless = [call(None, "track"), call(None, "book")]
    assert told(read(nameless, [result("b", name="book"), result("a", name="track")], DONE)) == [
        ("a", "", "track"), ("b", "", "book"),
    ]  # fmt: skip
    assert [text for text, *_ in told(read(nameless, [result("a"), result("b")], DONE))] == ["a", "b"]
    assert told(read(nameless, [result("both")], DONE)) == [("both", "", "")]
    mixed = read(CALLS, [result("b"), result("a", "1"), result("c")], DONE)
    assert [text for text, *_ in told(mixed)] == ["a", "b", "c"]


def test_anthropic_blocks_have_ids_too() -> None:
    uses = [{"type": "tool_use", "id": id, "name": id * 2, "input": {}} for id in "ab"]
    results = [{"type": "tool_result", "tool_use_id": id, "content": id.upper()} for id in "ba"]
    value = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": uses},
            {"role": "user", "content": results},
            DONE,
        ]
    }
    assert told(read_record(value, FileValue(file="f", line=1, value=value))) == [
        ("A", "a", "aa"),
        ("B", "b", "bb"),
    ]


@pytest.mark.parametrize(
    ("results", "rest", "error"),
    [
        (
            [result("a", "1"), result("b", "2"), result("x", "99")],
            [DONE],
            "a result of the call '99', and before it",
        ),
        ([result("a", "1"), result("b", "1")], [DONE], "a result of the call '1', and before it stand"),
        (
            [result("a", "1"), result("b", "2")],
            [DONE],
            "no result of the call '3' of book before the next answer",
        ),
        (
            [],
            [{"role": "user", "content": "and?"}, DONE],
            "no result of the call '1' of track before the next",
        ),
        ([], [DONE], "no result of a call of book before the next answer"),
        ([result("a"), result("b")], [DONE], "no result of the call '3' of book"),
        (
            [],
            [{"role": "user", "content": "x"}, result("a", "1")],
            "a result of the call '1', and before it stands no",
        ),
    ],
)
def test_what_does_not_fit_is_named(results: list[Any], rest: list[Any], error: str) -> None:
    with pytest.raises(DataError, match=error) as raised:
        read(CALLS, results, *rest)
    assert str(raised.value).startswith("f.jsonl line 3: ") and "; " in str(raised.value)


def test_calls_may_be_open_at_the_end() -> None:
    assert told(read(CALLS, [])) == []
    assert told(read(CALLS, [result("c", "3")])) == [("c", "3", "book")]


def test_results_in_the_words_of_the_user_are_results() -> None:
    value = {
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": '<tool_call>{"name": "a"}</tool_call><tool_call>{"name": "b"}</tool_call>',
            },
            {"role": "user", "content": "<tool_response>1</tool_response>\n<tool_response>2</tool_response>"},
            DONE,
        ]
    }
    assert told(read_record(value, FileValue(file="f", line=1, value=value))) == [
        ("1", "", "a"),
        ("2", "", "b"),
    ]


def test_ids_that_nobody_gave_are_made_from_places() -> None:
    record = read([call(None, "a"), call("own", "b")], [result("1"), result("2", "own")], DONE)
    rows = message_rows(record.messages)
    assert [each["id"] for each in rows[1]["tool_calls"]] == ["call_0_0", "own"]
    assert [row["tool_call_id"] for row in rows[2:4]] == ["call_0_0", "own"] and "name" not in rows[2]
    value = {"messages": rows}
    again = read_record(value, FileValue(file="f.jsonl", line=3, value=value))
    assert message_rows(again.messages) == rows
    (_, one) = message_rows(read([call(None, "a"), call(None, "b")], [result("both")], DONE).messages)[1:3]
    assert "tool_call_id" not in one
