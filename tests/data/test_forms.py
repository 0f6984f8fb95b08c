"""Preferences and labelled answers as other tools write them, and files that mix forms."""

import json
from typing import Any

import pytest

from quintain.data.files import FileValue, read_lines
from quintain.data.records import Record, read_labelled, read_preferences, read_records
from quintain.errors import DataError
from quintain.types import as_text

ASK = {"role": "user", "content": "ask"}


def found(*values: object) -> list[FileValue]:
    return list(read_lines([json.dumps(value) for value in values], "f.jsonl"))


def answer(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def said(record: Record) -> list[str]:
    return [as_text(m.content) for m in record.messages]


PREFERENCES: dict[str, dict[str, Any]] = {
    "trl": {"prompt": [ASK], "chosen": [answer("good")], "rejected": [answer("bad")]},
    "texts": {"prompt": "ask", "chosen": "good", "rejected": "bad"},
    "openai": {
        "input": {"messages": [ASK], "tools": [], "parallel_tool_calls": True},
        "preferred_output": [answer("good")],
        "non_preferred_output": [answer("bad")],
    },
    "llama-factory": {
        "conversations": [{"from": "human", "value": "ask"}],
        "chosen": {"from": "gpt", "value": "good"},
        "rejected": {"from": "gpt", "value": "bad"},
    },
    "ms-swift": {"messages": [ASK, answer("good")], "rejected_response": "bad"},
    "ms-swift, whole": {"messages": [ASK, answer("good")], "rejected_messages": [ASK, answer("bad")]},
}


@pytest.mark.parametrize("form", PREFERENCES)
def test_preferences_of_other_tools(form: str) -> None:
    (preference,) = read_preferences(found(PREFERENCES[form]))
    assert (said(preference.chosen), said(preference.rejected)) == (["ask", "good"], ["ask", "bad"])
    with pytest.raises(DataError, match=r"f.jsonl line 1: got a preference, and this takes a conversation"):
        list(read_records(found(PREFERENCES[form])))


LABELLED: dict[str, dict[str, Any]] = {
    "trl": {"prompt": [ASK], "completion": [answer("bad")], "label": False},
    "texts": {"prompt": "ask", "completion": "bad", "label": False},
    "ms-swift": {"messages": [ASK, answer("bad")], "label": False},
    "llama-factory": {
        "conversations": [{"from": "human", "value": "ask"}, {"from": "gpt", "value": "bad"}],
        "kto_tag": False,
    },
    "numbers": {"prompt": "ask", "completion": "bad", "label": 0},
}


@pytest.mark.parametrize("form", LABELLED)
def test_labelled_answers_are_no_demonstrations(form: str) -> None:
    cure = "train it with quintain train dpo --loss kto --preferences FILE"
    with pytest.raises(
        DataError, match=f"line 1: got a labelled answer, and this takes a conversation; {cure}"
    ):
        list(read_records(found(LABELLED[form])))
    for records in (
        read_labelled(found(LABELLED[form])),
        read_records(found(LABELLED[form]), takes_labels=True),
    ):
        (record,) = records
        assert said(record) == ["ask", "bad"] and record.fields == {"is_success": False}


def test_sides_of_preferences_are_labelled_answers() -> None:
    good, bad = read_labelled(found(PREFERENCES["trl"]))
    assert (said(good)[-1], good.fields, said(bad)[-1], bad.fields) == (
        "good", {"is_success": True}, "bad", {"is_success": False},
    )  # fmt: skip


def test_a_label_of_another_kind_is_none() -> None:
    (record,) = read_records(found({"messages": [ASK, answer("x")], "label": "billing"}))
    assert record.unread == ("key 'label' of records",)


@pytest.mark.parametrize(
    ("values", "read", "error"),
    [
        (
            (PREFERENCES["trl"], LABELLED["trl"]),
            read_labelled,
            "got a labelled answer, and f.jsonl line 1 is a pref",
        ),
        (
            ({"messages": [ASK, answer("x")]}, PREFERENCES["trl"]),
            read_records,
            "line 2: got a preference, and this",
        ),
        (
            (PREFERENCES["trl"], {"messages": [ASK, answer("x")]}),
            read_preferences,
            "line 2: got a conversation, and",
        ),
        (
            (LABELLED["trl"], {"messages": [ASK, answer("x")]}),
            read_labelled,
            "line 2: got a conversation, and this",
        ),
    ],
)
def test_a_file_holds_one_form(values: tuple[object, ...], read: Any, error: str) -> None:
    with pytest.raises(DataError, match=error):
        list(read(found(*values), left_out=[]))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"messages": 3, "rejected_response": "bad"}, "messages of type int; give a list"),
        ({"messages": [], "rejected_response": "bad"}, "rejected_response 'bad'; give the text"),
        ({"rejected_response": "bad", "prompt": "a"}, "rejected_response without messages"),
        ({"prompt": "a", "rejected": "bad"}, "without chosen; give both sides"),
        (
            {"input": 3, "preferred_output": [answer("a")], "non_preferred_output": [answer("b")]},
            "a prompt of type",
        ),
    ],
)
def test_a_bad_preference_is_named(value: object, error: str) -> None:
    with pytest.raises(DataError, match=error):
        list(read_preferences(found(value)))


def test_lines_that_cannot_be_used_are_left_out_where_that_is_asked_for() -> None:
    left_out: list[str] = []
    lines = ["{", "3", json.dumps({"messages": [answer("x")]}), json.dumps({"messages": [{"role": "cat"}]})]
    records = list(read_records(read_lines(lines, "f.jsonl"), left_out=left_out))
    assert [record.line for record in records] == [3]
    assert [line.partition(":")[0] for line in left_out] == [
        "f.jsonl line 1",
        "f.jsonl line 2",
        "f.jsonl line 4",
    ]
    pair, broken = PREFERENCES["texts"], {"prompt": "a", "chosen": "b", "rejected": "b"}
    assert len(list(read_preferences(found(pair, broken), left_out=left_out))) == 1 and len(left_out) == 4
    assert len(list(read_labelled(found(pair, broken), left_out=left_out))) == 2 and len(left_out) == 5
