"""How a chat template takes messages: where thoughts go, how calls are given, which ids it bears.

Templates are given the same messages in different shapes: thoughts beside the content or in it, arguments as an object
or as JSON text, no content at all beside calls. Which shape a template understands is found by rendering small chats:
the one that shows everything is taken.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from quintain.text.encoder import Defuser, TextEncoder
from quintain.text.parse import json_text, write_tool_calls
from quintain.types import INLINE_REASONING, Message, ToolCall, ToolSpec, as_text

Entry = dict[str, Any]
"""A message as a template sees it; its texts are already defused."""
Attempt = Callable[..., str | None]
"""(entries, tools, opens=…) → rendering; None where the template refuses."""
ReasoningKey = Literal["reasoning_content", "reasoning", "thinking", "parts", "inline"]
"""Where a template looks for a thought: a key beside the content, a part of it, or nowhere (it stands in the text)."""
REASONING_KEYS: tuple[ReasoningKey, ...] = ("reasoning_content", "reasoning", "thinking", "parts")
THOUGHT, ANSWER, RESULT, NAME, VALUE = (
    "quintainthought", "quintainanswer", "quintaintool", "quintainlook", "quintainplace",
)  # fmt: skip
CALL_ID = "quintain1"
"""Mistral's templates ask for ids of nine letters and digits."""
FOREIGN_ID = "call_quintain-foreign-id"
SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
USER: Entry = {"role": "user", "content": "quintainuser"}
PROBE_TOOL = ToolSpec(
    name=NAME,
    description="quintaindescription",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}},
)
HAT = "\ue002"
"""Stands for the first character of markup inside of arguments while a template writes them as JSON."""


def answer(text: str) -> Entry:
    """Return the entry of an assistant message."""
    return {"role": "assistant", "content": text}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageShape:
    """The shape in which a template takes messages; see `find_shape`."""

    reasoning: ReasoningKey = "inline"
    arguments: Literal["object", "text"] = "object"
    empty_content: str | None = ""
    """Content of an answer that only calls."""
    writes_calls: bool = False
    """Whether calls of the assistant are shown at all."""
    takes_foreign_ids: bool = True
    """Whether ids of any form are borne; else those that are not nine letters and digits are made so."""
    names_in_ids: bool = False
    """Whether the id of a call is what names the tool (``functions.look:0``)."""


def find_shape(attempt: Attempt) -> MessageShape:
    """Return the first shape in which the template shows all that it is given."""
    reasoning: ReasoningKey = "inline"
    for key in REASONING_KEYS:
        shown = attempt([USER, with_reasoning(answer(ANSWER), THOUGHT, key)], opens=False) or ""
        if THOUGHT in shown and ANSWER in shown and not re.search("""["']type["']""", shown):
            reasoning = key
            break
    plain = MessageShape(reasoning=reasoning)
    shapes = [
        MessageShape(reasoning=reasoning, arguments=arguments, empty_content=empty, writes_calls=True)
        for arguments in ("object", "text")
        for empty in ("", None)
    ]
    for shape in shapes:
        shown = attempt([USER, probe_call(shape)], (PROBE_TOOL,), opens=False)
        if shown and VALUE in shown.partition(USER["content"])[2]:
            said = shown.partition(USER["content"])[2]
            foreign = attempt(
                [USER, probe_call(shape, FOREIGN_ID), probe_result(FOREIGN_ID)], (PROBE_TOOL,), opens=False
            )
            own = attempt([USER, probe_call(shape), probe_result()], (PROBE_TOOL,), opens=False)
            return MessageShape(
                reasoning=reasoning,
                arguments=shape.arguments,
                empty_content=shape.empty_content,
                writes_calls=True,
                takes_foreign_ids=foreign is not None or own is None,
                names_in_ids=NAME not in said and CALL_ID in said,
            )
    return plain


def probe_call(shape: MessageShape, call_id: str = CALL_ID) -> Entry:
    """Return an answer that makes one call, in `shape`."""
    function = {"name": NAME, "arguments": as_arguments({"at": VALUE}, shape)}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": shape.empty_content, "tool_calls": calls}


def probe_result(call_id: str = CALL_ID) -> Entry:
    """Return what the call of `probe_call` came to."""
    return {"role": "tool", "content": RESULT, "tool_call_id": call_id, "name": NAME}


def as_arguments(arguments: Mapping[str, Any], shape: MessageShape) -> Any:
    """Return arguments as a template of `shape` takes them."""
    return json_text(arguments) if shape.arguments == "text" else dict(arguments)


def with_reasoning(entry: Entry, thought: str, key: ReasoningKey) -> Entry:
    """Return `entry` with a thought where the template looks for it."""
    if not thought:
        return entry
    if key == "inline":
        return {**entry, "content": INLINE_REASONING.format(thought) + (entry["content"] or "")}
    if key == "parts":
        said = [{"type": "text", "text": entry["content"]}] if entry["content"] else []
        return {**entry, "content": [{"type": "thinking", "thinking": thought}, *said]}
    return {**entry, key: thought}


class EntryMaker:
    """Makes entries of messages: ``EntryMaker(encoder, shape).entry(message)``."""

    def __init__(self, encoder: TextEncoder, shape: MessageShape) -> None:
        self._encoder = encoder
        self.shape = shape
        self.takes_calls = shape.writes_calls
        """Whether calls are given beside the content; else they are text in it."""
        self.hats: tuple[str, ...] = ()
        """Marks that must not stand in the arguments of a call, because they would end it: their first character is
        escaped as JSON."""

    def entry(self, message: Message) -> Entry:
        """Return `message` for the template, its texts defused."""
        text, defuse = as_text(message.content), self._encoder.defuse
        if message.role == "tool":
            made: Entry = {"role": "tool", "content": defuse(text)}
            if message.tool_call_id:
                made["tool_call_id"] = defuse(self.fit_id(message.tool_call_id))
            return {**made, "name": defuse(message.name)} if message.name else made
        if message.role != "assistant":
            return {"role": message.role, "content": defuse(text)}
        defuse_answer = self._encoder.defuse_answer
        said = answer(defuse_answer(text))
        if message.tool_calls and not self.takes_calls:
            said["content"] += defuse_answer(write_tool_calls(message.tool_calls))
        elif message.tool_calls:
            said["content"] = said["content"] or self.shape.empty_content
            said["tool_calls"] = [self._call(call) for call in message.tool_calls]
        return with_reasoning(said, defuse_answer(message.reasoning.strip()), self.shape.reasoning)

    def fit_id(self, call_id: str) -> str:
        """Return `call_id`, made to nine letters and digits where the template bears no others."""
        if self.shape.takes_foreign_ids or SHORT_ID.fullmatch(call_id):
            return call_id
        return hashlib.blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()[:9]

    def make_call_id(self, name: str, number: int) -> str:
        """Return an id for call `number` of a chat, which nobody gave one."""
        return f"functions.{name}:{number}" if self.shape.names_in_ids else f"call{number:05d}"

    def _call(self, call: ToolCall) -> dict[str, Any]:
        given = change_texts(change_texts(call.arguments, self._put_hats), self._encoder.defuse)
        function = {"name": self._encoder.defuse(call.name), "arguments": as_arguments(given, self.shape)}
        return {"id": self._encoder.defuse(self.fit_id(call.id)), "type": "function", "function": function}

    def _put_hats(self, text: str) -> str:
        for mark in self.hats:
            text = text.replace(mark, HAT + mark[1:])
        return text


def take_hats(text: str, marks: Sequence[str]) -> str:
    """Return rendered `text` with the characters that `EntryMaker.hats` stand for, as JSON escapes them."""
    if HAT not in text and "\\ue002" not in text:
        return text
    escaped = json.dumps(marks[0][0])[1:-1] if ord(marks[0][0]) > 127 else f"\\u{ord(marks[0][0]):04x}"
    return text.replace(HAT, escaped).replace("\\ue002", escaped)


def change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the JSON `value` with every string in it, keys included, changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            change(str(key)): change_texts(item, change)
            for key, item in cast("Mapping[str, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [change_texts(item, change) for item in cast("Sequence[Any]", value)]
    return value


def as_schema(tool: ToolSpec, defuse: Defuser) -> dict[str, Any]:
    """Return `tool` as templates take it, its texts defused."""
    function = {
        "name": defuse(tool.name),
        "description": defuse(tool.description),
        "parameters": change_texts(tool.parameters, defuse),
    }
    return {"type": "function", "function": function}
