"""Calls as chat: what calls a tool in JSON or ReAct says so in sentences, so that the form is not what is learned.

The idea is Agent-FLAN's (arXiv 2403.12881). A call stands behind what was said with it, as ``I call add with a = 3,
b = 4.``; its result is the user's next message; and tools are told in the system text. Whoever is to act with tool
calls again needs data in their form, too: a conversation in chat form calls nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from quintain.data.records import Record, RecordMessage
from quintain.types import Message, ToolCall, ToolSpec, as_content, as_text
from quintain.types.json_text import load_json

REACT = re.compile(
    r"\s*(?:Thought:\s*(?P<thought>.*?)\s*)?^Action:[ \t]*(?P<name>[\w.-]+)\s*^Action Input:\s*(?P<input>.*?)\s*",
    re.DOTALL | re.MULTILINE,
)
ANSWER = re.compile(
    r"\s*(?:Thought:\s*(?P<thought>.*?)\s*)?^Final Answer:\s*(?P<answer>.*?)\s*", re.DOTALL | re.MULTILINE
)
SHOWN = re.compile(r"\s*Observation:\s*")
RESULT = "The result: "
"""What stands in front of a tool's result that the user tells."""


def as_chat(call: ToolCall) -> str:
    """Return `call` as a sentence: ``I call add with a = 3, b = 4.``; values stand as JSON."""
    told = ", ".join(f"{name} = {json.dumps(value)}" for name, value in call.arguments.items())
    return f"I call {call.name} with {told}." if told else f"I call {call.name}."


def in_chat(record: Record) -> Record | None:
    """Return `record` with its calls, results and tools in words; None where a call in its text cannot be read.

    Calls are read in ``tool_calls`` (and so in whatever text `read_record` reads), in ReAct (``Action:`` and ``Action
    Input:`` with JSON), and as JSON of ``name`` and ``arguments`` that an answer consists of. As many answers stay,
    each with its weight. What the system text says of another form stays: nobody knows where that begins and ends.
    """
    said: list[RecordMessage] = []
    has_called = False
    for each in record.said:
        message = each.message
        if message.role == "assistant":
            text = chat_text(message)
            if text is None:
                return None
            has_called = text != as_text(message.content)
            said.append(replace(each, message=replace(message, content=as_content(text), tool_calls=())))
            continue
        told = as_text(message.content)
        if message.role == "tool" or (has_called and SHOWN.match(told)):
            message = Message(role="user", content=as_content(RESULT + SHOWN.sub("", told, count=1)))
        if said and said[-1].message.role == message.role == "user":
            both = "\n".join(as_text(one.content) for one in (said.pop().message, message))
            message = Message(role="user", content=as_content(both))
        said.append(replace(each, message=message))
    if record.tools:
        own = as_text(said.pop(0).message.content) if said[0].message.role == "system" else ""
        system = "\n".join(filter(None, (own, tools_in_words(record.tools))))
        said.insert(0, RecordMessage(message=Message(role="system", content=as_content(system))))
    return replace(record, said=tuple(said), tools=())


def chat_text(message: Message) -> str | None:
    """Return what an answer says with its calls as sentences; None where one in its text cannot be read."""
    text = as_text(message.content)
    if message.tool_calls:
        return "\n".join(filter(None, (text.strip(), *map(as_chat, message.tool_calls))))
    if (found := ANSWER.fullmatch(text)) is not None:
        return "\n".join(filter(None, (found["thought"], found["answer"])))
    if (found := REACT.fullmatch(text)) is not None:
        given = arguments_of(found["input"] or "{}")
        if given is None:
            return None
        return "\n".join(
            filter(None, (found["thought"], as_chat(ToolCall(name=found["name"], arguments=given))))
        )
    own = arguments_of(text)
    if own is None or not isinstance(own.get("name"), str) or set(own) != {"name", "arguments"}:
        return text
    given = own["arguments"]
    if not isinstance(given, dict):
        given = arguments_of(str(given))
    if given is None:
        return None
    return as_chat(ToolCall(name=own["name"], arguments=cast("dict[str, Any]", given)))


def arguments_of(text: str) -> dict[str, Any] | None:
    """Return the JSON object that `text` is; None where it is none."""
    if not text.strip().startswith("{"):
        return None
    try:
        return cast("dict[str, Any]", load_json(text))
    except ValueError:
        return None


def tools_in_words(tools: Sequence[ToolSpec]) -> str:
    """Return a line for each of `tools`: ``You can call add with a (integer): Double it.``."""
    lines: list[str] = []
    for tool in tools:
        fields: Mapping[str, Any] = tool.parameters.get("properties", {})
        required = tool.parameters.get("required", ())
        told = ", ".join(argument_in_words(name, schema, name in required) for name, schema in fields.items())
        lines.append(
            f"You can call {tool.name}{f' with {told}' if told else ''}"
            + (f": {tool.description.strip()}" if tool.description.strip() else ".")
        )
    return "\n".join(lines)


def argument_in_words(name: str, schema: object, is_required: bool) -> str:
    """Return an argument as ``unit (string, one of "C", "F", optional)``."""
    own = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    told = [str(own["type"])] if isinstance(own.get("type"), str) else []
    if isinstance(own.get("enum"), list):
        told.append("one of " + ", ".join(json.dumps(each, ensure_ascii=False) for each in own["enum"]))
    told += [] if is_required else ["optional"]
    return f"{name} ({', '.join(told)})" if told else name
