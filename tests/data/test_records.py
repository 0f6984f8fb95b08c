import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.data.files import FileValue, read_lines
from quintain.data.records import Record, read_labelled, read_preferences, read_records, read_tools
from quintain.errors import DataError
from quintain.types import ToolCall, ToolSpec, as_text

GO = ToolCall(name="go", arguments={"to": "Rome"})
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}


def found(*values: object) -> list[FileValue]:
    return list(read_lines([json.dumps(value) for value in values], "f.jsonl"))


def read(value: object) -> Record:
    (record,) = read_records(found(value))
    return record


def spoken(record: Record) -> list[tuple[str, str, tuple[ToolCall, ...], bool | None]]:
    return [
        (s.message.role, as_text(s.message.content), s.message.tool_calls, s.is_trained) for s in record.said
    ]


OPENAI_CALL = {"id": "c", "type": "function", "function": {"name": "go", "arguments": '{"to": "Rome"}'}}
FORMATS: dict[str, Any] = {
    "openai": {
        "messages": [
            {"role": "developer", "content": "Help."},
            {"role": "user", "content": [{"type": "text", "text": "To "}, {"type": "text", "text": "Rome"}]},
            {"role": "assistant", "content": "On it.", "tool_calls": [OPENAI_CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
            {"role": "assistant", "content": "There."},
        ],
        "tools": [
            {"type": "function", "function": {"name": "go", "description": "Go.", "parameters": SCHEMA}}
        ],
    },
    "functions": {
        "messages": [
            {"role": "system", "content": "Help."},
            {"role": "user", "content": "To Rome"},
            {
                "role": "assistant",
                "content": "On it.",
                "function_call": {"name": "go", "arguments": '{"to": "Rome"}'},
            },
            {"role": "function", "name": "go", "content": "done"},
            {"role": "assistant", "content": "There."},
        ],
        "functions": [{"name": "go", "description": "Go.", "parameters": SCHEMA}],
    },
    "sharegpt": {
        "system": "Help.",
        "conversations": [
            {"from": "human", "value": "To Rome"},
            {"from": "gpt", "value": "On it."},
            {"from": "function_call", "value": '{"name": "go", "arguments": {"to": "Rome"}}'},
            {"from": "observation", "value": "done"},
            {"from": "gpt", "value": "There."},
        ],
        "tools": json.dumps([{"name": "go", "description": "Go.", "parameters": SCHEMA}]),
    },
    "hermes": {
        "conversations": [
            {"from": "system", "value": "Help."},
            {"from": "human", "value": "To Rome"},
            {
                "from": "gpt",
                "value": 'On it.\n<tool_call>\n{"name": "go", "arguments": {"to": "Rome"}}\n</tool_call>',
            },
            {"from": "tool", "value": "<tool_response>\ndone\n</tool_response>"},
            {"from": "gpt", "value": "There."},
        ],
        "tools": [
            {"type": "function", "function": {"name": "go", "description": "Go.", "parameters": SCHEMA}}
        ],
    },
    "anthropic": {
        "system": [{"type": "text", "text": "Help."}],
        "messages": [
            {"role": "user", "content": "To Rome"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "On it."},
                    {"type": "tool_use", "id": "c", "name": "go", "input": {"to": "Rome"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "done"}]}
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "There."}]},
        ],
        "tools": [{"name": "go", "description": "Go.", "input_schema": SCHEMA}],
    },
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_record(form: str) -> None:
    record = read(FORMATS[form])
    assert spoken(record) == [
        ("system", "Help.", (), None),
        ("user", "To Rome", (), None),
        ("assistant", "On it.", (GO,), None),
        ("tool", "done", (), None),
        ("assistant", "There.", (), None),
    ]
    assert record.tools == (ToolSpec(name="go", description="Go.", parameters=SCHEMA),)
    assert (record.file, record.line, record.place) == ("f.jsonl", 1, "f.jsonl line 1")


def test_several_results_a_text_beside_them_and_thoughts() -> None:
    record = read(
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "so"}, {"type": "text", "text": "a"}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "content": "1"},
                        {"type": "tool_result", "content": None},
                        {"type": "text", "text": "and?"},
                    ],
                },
                {"role": "assistant", "content": "b", "reasoning_content": "hm"},
            ],
            "id": 7,
        }
    )
    assert [(role, text) for role, text, _, _ in spoken(record)] == [
        ("user", "hi"),
        ("assistant", "a"),
        ("tool", "1"),
        ("tool", ""),
        ("user", "and?"),
        ("assistant", "b"),
    ]
    assert [m.reasoning for m in record.messages] == ["", "so", "", "", "", "hm"]
    assert record.fields == {"id": 7} and record.messages[0].role == "user"


def test_tags_prompts_and_unread_calls_of_what_is_not_trained() -> None:
    record = read(
        {
            "messages": [
                {"role": "assistant", "content": "<tool_call>{broken", "weight": 0},
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": "y", "train": True},
            ]
        }
    )
    assert [tag for _, _, _, tag in spoken(record)] == [False, None, True]
    done = read(
        {
            "prompt": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
            "completion": "c",
        }
    )
    assert [(role, tag) for role, _, _, tag in spoken(done)] == [
        ("assistant", False),
        ("user", None),
        ("assistant", None),
    ]
    empty = read(
        {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "tool_calls": [{"name": "go"}]}]}
    )
    assert spoken(empty)[1] == ("assistant", "", (ToolCall(name="go"),), None)


def test_preferences_share_what_they_begin_with() -> None:
    said = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    whole = {
        "chosen": [*said, {"role": "assistant", "content": "good"}],
        "rejected": [*said, {"role": "assistant", "content": "bad"}],
    }
    apart = {"prompt": "c", "chosen": "good", "rejected": "bad"}
    repeated = {"prompt": "a", **whole}
    first, second, third = read_preferences(found(whole, apart, repeated))
    assert [tag for _, _, _, tag in spoken(first.chosen)] == [None, False, None, None]
    assert [(r, t) for r, t, _, _ in spoken(second.rejected)] == [("user", "c"), ("assistant", "bad")]
    assert third.chosen.said == first.chosen.said


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"chosen": "a"}, "without rejected; give both sides"),
        ({"chosen": "a", "rejected": "b"}, "chosen as a text without prompt"),
        ({"prompt": "p", "chosen": "a", "rejected": "a"}, "that are the same"),
    ],
)
def test_a_bad_preference_is_named(value: object, error: str) -> None:
    with pytest.raises(DataError, match=f"f.jsonl line 1: got .*{error}"):
        list(read_preferences(found(value)))


def message_of(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": text}]}


def message(**entry: object) -> object:
    return {"messages": [entry, {"role": "user", "content": "u"}, {"role": "assistant", "content": "x"}]}


ASSISTANT = {"role": "assistant"}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([1], "got list instead of an object"),
        ({}, r"got the keys \[\]"),
        (
            {"chosen": "a", "rejected": "b"},
            "a preference, and this takes a conversation; train it with quintain train dpo",
        ),
        ({"messages": [], "conversations": []}, "either messages or conversations"),
        ({"messages": 3}, "messages of type int"),
        ({"messages": [3]}, "got int instead of an object"),
        ({"messages": []}, "no assistant message"),
        ({"messages": [{"role": "assistant", "content": " "}]}, "no assistant message"),
        (message(role="robot", content="x"), "the role 'robot'; choose from system"),
        (message(role=["user"], content="x"), "the role"),
        (message(content="x"), "the role None"),
        (message(role="user"), "the content None"),
        (message(role="user", content=5), "the content 5"),
        (message(role="user", content=[{"type": "image"}]), "content of the kind image; only text is read"),
        (message(role="user", content=["x"]), "got str instead of an object"),
        (message(role="user", content="x", tool_calls=[{"name": "a"}]), "give them to the assistant only"),
        (message(**ASSISTANT, content="x", weight=0.5), "weight 0.5; give 0 or 1"),
        (message(**ASSISTANT, tool_calls={"name": "a"}), "give a list"),
        (message(**ASSISTANT, tool_calls=["a"]), "got str instead"),
        (message(**ASSISTANT, tool_calls=[{"name": ""}]), "the tool name ''"),
        (
            message(**ASSISTANT, tool_calls=[{"name": "a", "arguments": "{"}]),
            "tool arguments that is no JSON",
        ),
        (message(**ASSISTANT, tool_calls=[{"name": "a", "arguments": "[]"}]), "got list instead"),
        (message(**ASSISTANT, content="<tool_call>{x</tool_call>"), "a tool call that is no JSON"),
        (message(**ASSISTANT, content="a <tool_call>{}"), "without its end"),
        (message(**ASSISTANT, content="a", reasoning=3), "reasoning of type int"),
        (
            {"messages": [{**ASSISTANT, "content": "a", "weight": 0}, {**ASSISTANT, "content": "b"}]},
            "two assistant",
        ),
        ({"conversations": [{"from": "robot", "value": "x"}]}, "the role 'robot'"),
        ({"conversations": [{"from": "gpt"}]}, "no assistant message with content"),
        ({"prompt": [{"role": "user", "content": "x"}], "reward_model": {}}, "a prompt that nobody answers"),
        ({**message_of("x"), "images": ["a.png"]}, "images beside the messages; only text is read"),
        ({**message_of("x"), "completion": "y"}, "got messages and completion; give either"),
        ({"prompt": 3, "completion": "x"}, "a prompt of type int"),
        ({"prompt": [3], "completion": "x"}, "got int instead of an object"),
        ({"messages": [], "tools": "{"}, "tools that is no JSON"),
        ({"messages": [], "tools": [{"name": 3}]}, "a tool with the name 3"),
    ],
)
def test_a_bad_record_is_named(value: object, error: str) -> None:
    with pytest.raises(DataError, match=error) as raised:
        read(value)
    assert str(raised.value).startswith("f.jsonl line 1: ") and "\n" not in str(raised.value)


def test_messages_of_a_table_may_be_json_text() -> None:
    whole = FORMATS["openai"]
    assert read({**whole, "messages": json.dumps(whole["messages"])}).said == read(whole).said


def test_tools_may_be_missing_or_have_no_schema() -> None:
    assert read_tools(None, "x") == read_tools(" ", "x") == ()
    (bare,) = read_tools([{"name": "go", "parameters": "{}"}], "x")
    assert bare == ToolSpec(name="go", description="", parameters={})


@given(st.text())
def test_any_text_is_read_or_refused(line: str) -> None:
    try:
        list(read_records(read_lines([line], "f")))
    except DataError as error:
        assert str(error)


KEYS = [
    "messages",
    "role",
    "content",
    "tools",
    "from",
    "value",
    "tool_calls",
    "name",
    "chosen",
    "prompt",
    "label",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
)


@given(JSON)
def test_any_value_is_read_or_refused(value: object) -> None:
    for reader in (read_records, read_preferences, read_labelled):
        try:
            list(reader([FileValue(file="f", line=1, value=value)]))
        except DataError as error:
            assert str(error)
