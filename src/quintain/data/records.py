"""Conversations of outside formats as validated records: messages, tools, and which answers are to be trained.

Read are OpenAI messages (tool calls, ``tools``, ``developer`` and ``function`` roles, ``weight``), ShareGPT (with
``function_call`` and ``observation``), Hermes and Qwen text (``<tool_call>`` in the content), Anthropic blocks
(``tool_use``, ``tool_result``), prompt and completion, ATIF, saved rollouts of verifiers, and preferences (chosen and
rejected). The format is told by each object itself, so files may mix them. Every object is read, or refused with its
file, line and cure; nothing is skipped in silence.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from quintain.data.atif import as_messages, is_atif
from quintain.data.files import Found
from quintain.data.thoughts import whole_text
from quintain.data.verifiers import as_conversations, is_rollout, is_trace
from quintain.errors import DataError
from quintain.types import NOTHING, Message, Text, ToolCall, ToolSpec, as_text

TrainOn = Literal["all", "last", "tagged"]
"""Which answers are trained: all but those that say otherwise, the last one, or those that say so."""
Overlong = Literal["error", "drop"]
"""What becomes of a conversation that is longer than the model's context."""
Role = Literal["system", "user", "assistant", "tool"]
OPENAI: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
SHAREGPT: Mapping[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
}
CONVERSATIONS, TOOLS = ("messages", "conversations", "conversation"), ("tools", "functions")
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
OPENING = "<tool_call>"
RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message, and whether its record says that it is to be trained: None where it says nothing."""

    message: Message
    is_trained: bool | None = None
    spoken: tuple[tuple[str, str], ...] = ()
    """(``name``, text) of each message of the assistant that it was joined of, where these have a name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One conversation of a file: ``Record(said=(…,), file="chats.jsonl", line=3, place="chats.jsonl line 3")``.

    Two assistant messages never follow each other: they are joined.
    """

    said: tuple[Said, ...]
    file: str
    line: int
    place: str
    """Where it stands, for errors."""
    tools: tuple[ToolSpec, ...] = ()
    fields: Mapping[str, Any] = NOTHING
    """Everything else that stood in the object."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages alone."""
        return tuple(each.message for each in self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Two ways on from the same beginning: ``Preference(chosen=record, rejected=record)``."""

    chosen: Record
    rejected: Record


def read_records(found: Iterable[Found]) -> Iterator[Record]:
    """Yield the conversation of each object; a trace of verifiers may hold several.

    Raises:
        DataError: an object that is no conversation, has nothing to learn from, or is a preference.
    """
    for each in found:
        value = as_object(each.value, each.place)
        if "chosen" in value:
            raise DataError(
                f"{each.place}: got a preference (chosen and rejected) among demonstrations; train it with "
                "quintain train dpo --preferences FILE"
            )
        if is_rollout(value) or is_trace(value):
            for conversation in as_conversations(value, each.place):
                yield read_record(conversation, each)
        else:
            yield read_record(value, each)


def read_preferences(found: Iterable[Found]) -> Iterator[Preference]:
    """Yield the preference of each object: chosen and rejected, with or without a prompt of their own.

    Both sides are lists of messages, or texts that answer ``prompt``; without one they begin alike, and what they
    share is context. Calls that cannot be read are a reason to prefer the other side: see `read_record`.

    Raises:
        DataError: an object that is no preference, or whose sides are the same.
    """
    for each in found:
        value = as_object(each.value, each.place)
        missing = [key for key in ("chosen", "rejected") if key not in value]
        if missing:
            raise DataError(
                f"{each.place}: got the keys {sorted(value)} without {missing[0]}; give chosen and rejected, or train "
                "conversations with sft"
            )
        rest = {key: cell for key, cell in value.items() if key not in ("chosen", "rejected")}
        prompt = rest.pop("prompt", None)
        if prompt is None and isinstance(value["chosen"], str):
            raise DataError(f"{each.place}: got chosen as a text without prompt; give the prompt as well")
        if prompt is None or (isinstance(prompt, str) and _repeats(value["chosen"], prompt)):
            prompt = []
        sides = [
            read_record({**rest, "prompt": prompt, "completion": value[key]}, each, keeps_text=True)
            for key in ("chosen", "rejected")
        ]
        if sides[0].said == sides[1].said:
            raise DataError(f"{each.place}: got chosen and rejected that are the same; leave the line out")
        yield Preference(chosen=_after_fork(*sides), rejected=_after_fork(sides[1], sides[0]))


def read_record(value: Mapping[str, Any], found: Found, *, keeps_text: bool = False) -> Record:
    """Return the conversation that the object `value` is.

    With `keeps_text` an answer of weight 1 is trained as it stands: calls in its text are text, whatever they call.

    Raises:
        DataError: it is none; no assistant says anything.
    """
    place = found.place
    fields = as_messages(value, place) if is_atif(value) else dict(value)
    names = [key for key in CONVERSATIONS if key in fields]
    if not names and "completion" in fields:
        prompt, said = (
            _entries(fields.pop("prompt", []), "user", place),
            _entries(fields.pop("completion"), "assistant", place),
        )
        entries = [{**entry, "train": False} if _is_answer(entry) else entry for entry in prompt] + said
    elif len(names) == 1:
        entries = fields.pop(names[0])
        entries = _json(entries, names[0], place) if isinstance(entries, str) else entries
        entries = _list(entries, names[0], place)
    else:
        raise DataError(
            f"{place}: got the keys {sorted(fields)}; give either messages or conversations, or prompt and completion"
        )
    tools = tuple(tool for key in TOOLS for tool in read_tools(fields.pop(key, None), place))
    read = [
        said for entry in entries for said in _said(as_object(entry, place), place, keeps_text=keeps_text)
    ]
    if "system" in fields and not (read and read[0].message.role == "system"):
        system = _text(fields.pop("system"), place, may_be_empty=True)
        read = [Said(message=_message("system", system)), *read] if system else read
    joined = _joined(read, place)
    if not any(
        said.message.role == "assistant" and (said.message.tool_calls or whole_text(said.message).strip())
        for said in joined
    ):
        raise DataError(f"{place}: got no assistant message with content; there is nothing to learn from")
    return Record(said=joined, file=found.file, line=found.line, place=place, tools=tools, fields=fields)


def read_tools(value: object, place: str) -> tuple[ToolSpec, ...]:
    """Return the tool schemas of `value`: a list as OpenAI or Anthropic write it, or the JSON text of one.

    Raises:
        DataError: it is no such list.
    """
    if isinstance(value, str):
        value = _json(value, "tools", place) if value.strip() else None
    if value is None:
        return ()
    tools: list[ToolSpec] = []
    for entry in _list(value, "tools", place):
        own = as_object(entry, place)
        own = as_object(own.get("function", own), place)
        name = own.get("name")
        schema = own.get("parameters", own.get("input_schema", {}))
        schema = _json(schema, "parameters", place) if isinstance(schema, str) else schema
        if not isinstance(name, str) or not name:
            raise DataError(f"{place}: got a tool with the name {name!r}; give its name, as a string")
        tools.append(
            ToolSpec(
                name=name,
                description=str(own.get("description") or ""),
                parameters=as_object(schema or {}, place),
            )
        )
    return tuple(tools)


def as_object(value: object, place: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object; raise it if it is what was wrong with its line."""
    if isinstance(value, DataError):
        raise value
    if not isinstance(value, dict):
        raise DataError(f"{place}: got {type(value).__name__} instead of an object; write {{...}}")
    return cast(dict[str, Any], value)


def _said(entry: Mapping[str, Any], place: str, *, keeps_text: bool) -> Iterator[Said]:
    """Yield the messages of one entry: a user message of Anthropic may hold several tool results."""
    is_sharegpt = "from" in entry
    role = _role(entry.get("from" if is_sharegpt else "role"), SHAREGPT if is_sharegpt else OPENAI, place)
    tag = _tag(entry, place)
    content = entry.get("value" if is_sharegpt and "value" in entry else "content")
    if role == "user" and isinstance(content, list):
        blocks = [as_object(block, place) for block in cast("list[object]", content)]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            text = _text(block.get("content"), place, may_be_empty=True)
            yield Said(message=_message("tool", text))
        content = [block for block in blocks if block.get("type") != "tool_result"]
        if results and not content:
            return
    if role != "assistant":
        if entry.get("tool_calls"):
            raise DataError(
                f"{place}: got tool_calls {entry['tool_calls']!r:.80} of role {role}; give them to the assistant only"
            )
        text = _text(content, place, may_be_empty=role == "tool")
        for part in (RESPONSE.findall(text) or [text]) if role == "tool" else [text]:
            yield Said(message=_message(role, part))
        return
    is_read = not (keeps_text if tag else tag is False)
    message = _answer(entry, content, place, is_read=is_read)
    speaker = entry.get("name")
    spoken = ((speaker, whole_text(message)),) if isinstance(speaker, str) and speaker else ()
    yield Said(message=message, is_trained=tag, spoken=spoken)


def _answer(entry: Mapping[str, Any], content: object, place: str, *, is_read: bool) -> Message:
    """Return the assistant's message: its text, and the calls beside it and, where it `is_read`, in it."""
    calls = [_call(each, place) for each in _list(entry.get("tool_calls") or [], "tool_calls", place)]
    if entry.get("function_call"):
        calls.append(_call(entry["function_call"], place))
    thought = entry.get("reasoning_content") or entry.get("reasoning") or ""
    if isinstance(content, list):
        blocks = [as_object(block, place) for block in cast("list[object]", content)]
        thought = thought or "".join(
            str(b.get("thinking", "")) for b in blocks if b.get("type") == "thinking"
        )
        calls += [_call(block, place) for block in blocks if block.get("type") == "tool_use"]
        content = [b for b in blocks if b.get("type") not in ("tool_use", "thinking", "redacted_thinking")]
    if entry.get("from") in ("function_call", "tool_call") and OPENING not in str(content):
        written = _json(content, "a function call", place) if isinstance(content, str) else content
        calls += [_call(each, place) for each in (written if isinstance(written, list) else [written])]
        content = None
    text = _text(content, place, may_be_empty=bool(calls) or bool(thought))
    if OPENING in text and is_read:
        calls += [_call(_json(body, "a tool call", place), place) for body in CALL.findall(text)]
        text = CALL.sub("", text).strip()
        if OPENING in text:
            raise DataError(f"{place}: got {OPENING} without its end; close it with </tool_call>")
    if not isinstance(thought, str):
        raise DataError(f"{place}: got reasoning of type {type(thought).__name__}; give a string")
    return Message(
        role="assistant", content=(Text(text=text),), tool_calls=tuple(calls), reasoning=thought.strip()
    )


def _joined(read: Sequence[Said], place: str) -> tuple[Said, ...]:
    """Return `read` with assistant messages that follow each other as one."""
    found: list[Said] = []
    for said in read:
        last = found[-1] if found else None
        if last is None or not last.message.role == said.message.role == "assistant":
            found.append(said)
            continue
        if last.is_trained != said.is_trained:
            raise DataError(
                f"{place}: got two assistant messages in a row, of which one is to be trained; join them, or tag both"
            )
        texts = [text for m in (last.message, said.message) if (text := as_text(m.content)).strip()]
        calls = (*last.message.tool_calls, *said.message.tool_calls)
        thoughts = [m.reasoning for m in (last.message, said.message) if m.reasoning]
        message = Message(
            role="assistant",
            content=(Text(text="\n".join(texts)),),
            tool_calls=calls,
            reasoning="\n".join(thoughts),
        )
        is_named = last.spoken and said.spoken
        found[-1] = replace(last, message=message, spoken=(*last.spoken, *said.spoken) if is_named else ())
    return tuple(found)


def _after_fork(record: Record, other: Record) -> Record:
    """Return `record` with what it shares with `other` from the beginning as context."""
    shared = 0
    for own, its in zip(record.said, other.said, strict=False):
        if own.message != its.message:
            break
        shared += 1
    said = tuple(
        replace(each, is_trained=False) if place < shared and each.message.role == "assistant" else each
        for place, each in enumerate(record.said)
    )
    return replace(record, said=said)


def _entries(value: object, role: str, place: str) -> list[Any]:
    """Return a prompt or a completion as entries of messages; a text is one message of `role`."""
    return [{"role": role, "content": value}] if isinstance(value, str) else _list(value, "a prompt", place)


def _repeats(side: object, prompt: str) -> bool:
    """Whether the messages of `side` hold the `prompt` themselves."""
    entries = cast("list[object]", side) if isinstance(side, list) else []
    return any(isinstance(e, dict) and prompt in cast("dict[str, object]", e).values() for e in entries)


def _is_answer(entry: object) -> bool:
    """Whether `entry` is a message of the assistant."""
    if not isinstance(entry, dict):
        return False
    own = cast("dict[str, object]", entry)
    return SHAREGPT.get(str(own.get("from", own.get("role")))) == "assistant"


def _tag(entry: Mapping[str, Any], place: str) -> bool | None:
    """Return what ``train`` or ``weight`` say of the message; None where neither is there."""
    for key in ("train", "weight"):
        value = entry.get(key)
        if value is None:
            continue
        if value in (0, 1):
            return bool(value)
        raise DataError(f"{place}: got {key} {value!r}; give 0 or 1 (false or true)")
    return None


def _role(name: object, roles: Mapping[str, Role], place: str) -> Role:
    if not isinstance(name, str) or name not in roles:
        raise DataError(f"{place}: got the role {name!r}; choose from {', '.join(roles)}")
    return roles[name]


def _message(role: Role, text: str) -> Message:
    return Message(role=role, content=(Text(text=text),))


def _list(value: object, what: str, place: str) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise DataError(f"{place}: got {what} of type {type(value).__name__}; give a list")


def _text(content: object, place: str, *, may_be_empty: bool) -> str:
    """Return a string, or the text parts of a list of parts; `may_be_empty` also admits None."""
    if isinstance(content, str):
        return content
    if content is None and may_be_empty:
        return ""
    if isinstance(content, list):
        parts = [as_object(part, place) for part in cast("list[object]", content)]
        texts = [part.get("text") for part in parts]
        if all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
            return "".join(cast("list[str]", texts))
        kinds = sorted({str(part.get("type")) for part in parts} - {"text"})
        raise DataError(
            f"{place}: got content of the kind {', '.join(kinds)}; only text is read, take it out"
        )
    raise DataError(f"{place}: got the content {content!r:.80}; give a string or a list of text parts")


def _json(value: object, what: str, place: str) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{place}: got {what} that is no JSON ({error}); write an object") from None


def _call(value: object, place: str) -> ToolCall:
    """Return a call as OpenAI, Anthropic or Hermes write it."""
    entry = as_object(value, place)
    function = as_object(entry.get("function", entry), place)
    name = function.get("name")
    arguments = function.get("arguments", function.get("input", function.get("parameters", {})))
    if isinstance(arguments, str):
        arguments = _json(arguments, "tool arguments", place) if arguments.strip() else {}
    if not isinstance(name, str) or not name:
        raise DataError(f"{place}: got the tool name {name!r}; give a string")
    return ToolCall(name=name, arguments=as_object({} if arguments is None else arguments, place))
