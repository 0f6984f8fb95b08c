"""Calls as chat and back; records in JSON and ReAct as chat."""

import json
import random
import re
from typing import Any

import pytest

from quintain.data.chat_form import as_chat, chat_text, in_chat
from quintain.data.files import FileValue
from quintain.data.records import Record, read_record
from quintain.types import Message, ToolCall, as_content, as_text

TOOL = {
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
        "required": ["city"],
    },
}


def record(*messages: dict[str, Any], **fields: Any) -> Record:
    return read_record({"messages": list(messages), **fields}, FileValue(file="f", line=1, value=None))


def said(made: Record | None) -> list[tuple[str, str]]:
    assert made is not None
    return [(m.role, as_text(m.content)) for m in made.messages]


USER = {"role": "user", "content": "Rome?"}


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 2 else 5)
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 6:
        return {f"k{k}": value(rng, depth + 1) for k in range(rng.randrange(3))}
    return [
        rng.randint(-9, 99),
        rng.random() < 0.5,
        None,
        rng.choice(['a "b", c = 3', "日本 ü\n", "x = 1.", ""]),
        0.5,
    ][kind]


def call_in(text: str) -> ToolCall:
    """The call that `text` says."""
    found = re.fullmatch(r"I call (\w+)(?: with (\w+ = .*))?\.", text, re.DOTALL)
    assert found is not None
    rest, arguments = found[2] or "", dict[str, Any]()
    while rest:
        name = re.match(r"(?:, )?(\w+) = ", rest)
        assert name is not None
        arguments[name[1]], end = json.JSONDecoder().raw_decode(rest, name.end())
        rest = rest[end:]
    return ToolCall(name=found[1], arguments=arguments)


def test_calls_as_chat_are_read_back_as_they_were() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        call = ToolCall(
            name=rng.choice(["add", "look_up", "t2"]),
            arguments={f"a{k}": value(rng) for k in range(rng.randrange(4))},
        )
        again = call_in(as_chat(call))
        assert again == call and json.dumps(again.arguments) == json.dumps(call.arguments)
    assert as_chat(ToolCall(name="add", arguments={"a": 3, "b": "x"})) == 'I call add with a = 3, b = "x".'


def test_calls_results_and_tools_in_words() -> None:
    calls = [
        {"function": {"name": "weather", "arguments": json.dumps({"city": c})}} for c in ("Rome", "Oslo")
    ]
    made = in_chat(
        record(
            {"role": "system", "content": "Be brief."},
            USER,
            {"role": "assistant", "content": "I look.", "tool_calls": calls, "weight": 0},
            {"role": "tool", "content": "sun"},
            {"role": "tool", "content": "snow"},
            {"role": "assistant", "content": "Sun."},
            tools=[TOOL],
        )
    )
    assert said(made) == [
        (
            "system",
            'Be brief.\nYou can call weather with city (string), unit (string, one of "C", "F", optional): '
            "Tell the weather.",
        ),
        ("user", "Rome?"),
        ("assistant", 'I look.\nI call weather with city = "Rome".\nI call weather with city = "Oslo".'),
        ("user", "The result: sun\nThe result: snow"),
        ("assistant", "Sun."),
    ]
    assert made is not None and not made.tools and not any(m.tool_calls for m in made.messages)
    assert [each.is_trained for each in made.said] == [None, None, False, None, None]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Thought: I look.\nAction: weather\nAction Input: {\"city\": \"Rome\"}",
         "I look.\nI call weather with city = \"Rome\"."),
        ("Action: now\nAction Input:", "I call now."),
        ("Thought: I know.\nFinal Answer: Sun.", "I know.\nSun."),
        ("{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}", "I call weather with city = \"Rome\"."),
        ("{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": 1}\"}", "I call weather with city = 1."),
        ("{\"name\": \"Rome\"}", "{\"name\": \"Rome\"}"),
        ("The Action: wait", "The Action: wait"),
    ],
)  # fmt: skip
def test_calls_in_text(text: str, wanted: str) -> None:
    seen = {"role": "user", "content": "Observation: sun"}
    made = said(in_chat(record(USER, {"role": "assistant", "content": text}, seen)))
    assert made[1] == ("assistant", wanted)
    assert made[2][1] == ("Observation: sun" if wanted == text else "The result: sun")


def test_what_cannot_be_read_is_no_chat() -> None:
    for wrong in ("Action: weather\nAction Input: {city", "Action: weather\nAction Input: Rome"):
        assert in_chat(record(USER, {"role": "assistant", "content": wrong})) is None


def test_a_call_whose_arguments_are_text_without_json_cannot_be_read() -> None:
    text = json.dumps({"name": "weather", "arguments": "Rome"})
    assert chat_text(Message(role="assistant", content=as_content(text))) is None
