"""Conversations as the readers of four other trainers take them: by value, and read back here as what they were."""

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.data.files import FileValue
from quintain.data.neighbours import NEIGHBOURS, Neighbour, write_for
from quintain.data.records import read_record
from quintain.types import as_text

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def record(*, weight: int | None = None) -> dict[str, Any]:
    """Two calls at once, their results, and an answer; the first answer may have a weight."""
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "add", "arguments": json.dumps({"a": n, "b": "ü"})},
        }
        for n in (1, 2)
    ]
    first: dict[str, Any] = {"role": "assistant", "content": "I add.", "tool_calls": calls}
    return {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1 and 2?"},
            first if weight is None else {**first, "weight": weight},
            {"role": "tool", "content": "1", "tool_call_id": "c1"},
            {"role": "tool", "content": "2", "tool_call_id": "c2"},
            {"role": "assistant", "content": "Both."},
        ],
        "tools": [ADD],
        "task": "sums/train/1",
        "reward": 0.5,
    }  # fmt: skip


def test_trl_gets_arguments_as_objects_and_the_tools_beside() -> None:
    row = write_for("trl", record())
    assert row is not None and set(row) == {"messages", "tools"} and row["tools"] == [ADD]
    assert [call["function"]["arguments"] for call in row["messages"][2]["tool_calls"]] == [
        {"a": 1, "b": "ü"}, {"a": 2, "b": "ü"},
    ]  # fmt: skip


def test_swift_gets_calls_and_results_as_messages_of_their_own() -> None:
    row = write_for("swift", record(weight=0))
    assert row is not None and json.loads(row["tools"]) == [ADD]
    assert row["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 and 2?"},
        {"role": "assistant", "content": "I add.", "loss": False},
        {"role": "tool_call", "content": '{"name": "add", "arguments": {"a": 1, "b": "ü"}}', "loss": False},
        {"role": "tool_call", "content": '{"name": "add", "arguments": {"a": 2, "b": "ü"}}', "loss": False},
        {"role": "tool_response", "content": "1"},
        {"role": "tool_response", "content": "2"},
        {"role": "assistant", "content": "Both."},
    ]


@pytest.mark.parametrize("form", ["openrlhf", "verl"])
def test_those_without_tools_get_them_in_sentences(form: Neighbour) -> None:
    row = write_for(form, record())
    assert row is not None and [message["role"] for message in row["messages"]] == [
        "system", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert "add" in row["messages"][0]["content"] and "Add two." in row["messages"][0]["content"]
    assert row["messages"][2]["content"].startswith("I add.") and "a = 1" in row["messages"][2]["content"]
    assert all(set(message) == {"role", "content"} for message in row["messages"])
    if form == "verl":
        assert row["extra_info"] == {"task": "sums/train/1", "reward": 0.5}


@pytest.mark.parametrize("form", NEIGHBOURS)
def test_what_is_not_trained_is_said_or_the_conversation_is_left_out(form: Neighbour) -> None:
    assert (write_for(form, record(weight=0)) is None) == (form != "swift")
    assert write_for(form, record(weight=1)) is not None


@pytest.mark.parametrize("form", ["trl", "swift"])
def test_a_row_is_read_back_as_what_it_was(form: Neighbour) -> None:
    row = write_for(form, record())
    assert row is not None

    def plain(value: dict[str, Any]) -> list[tuple[str, str, list[tuple[str, dict[str, Any]]]]]:
        found = read_record(value, FileValue(file="f", line=1, value=value))
        assert [tool.name for tool in found.tools] == ["add"]
        return [
            (m.role, as_text(m.content), [(c.name, dict(c.arguments)) for c in m.tool_calls])
            for m in found.messages
        ]

    assert plain(row) == plain(record())


def test_thoughts_stand_in_the_text_that_swift_reads() -> None:
    thought = {"role": "assistant", "content": "4", "reasoning_content": "2 and 2"}
    row = write_for("swift", {"messages": [{"role": "user", "content": "2+2"}, thought]})
    assert row == {
        "messages": [
            {"role": "user", "content": "2+2"},
            {"role": "assistant", "content": "<think>\n2 and 2\n</think>\n\n4"},
        ]
    }


def test_a_call_that_cannot_be_read_leaves_the_conversation_out() -> None:
    broken = {"role": "assistant", "content": 'Action: add\nAction Input: {"a": '}
    messages = [{"role": "user", "content": "x"}, broken]
    assert write_for("openrlhf", {"messages": messages}) is None


def test_parquet_for_verl_has_lists_of_messages(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from quintain.store.export import write_table

    rows = [
        write_for("verl", record()),
        write_for("verl", {"messages": record()["messages"][:2] + record()["messages"][-1:]}),
    ]
    write_table([row for row in rows if row is not None], tmp_path / "x.parquet")
    read = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert [len(row["messages"]) for row in read] == [5, 3]
    assert (
        read[1]["messages"][2] == {"role": "assistant", "content": "Both."}
        and read[0]["extra_info"]["reward"] == 0.5
    )
