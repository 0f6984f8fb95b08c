"""Trajectories as chat messages, one JSON object per line, and such files back as validated records.

Out: ``{"messages": [{"role", "content", "tool_calls"?}, …], "task", "reward", "is_success"}``. In: that, or ShareGPT
(``{"conversations": [{"from", "value"}]}``); tool calls as OpenAI writes them, with arguments as a JSON string. Every
line is read or refused with its number; nothing is skipped.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from quintain.data.seats import by_seat
from quintain.errors import DataError
from quintain.types import NOTHING, Message, Score, Text, ToolCall, Trajectory, as_text

Role = Literal["system", "user", "assistant", "tool"]
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
MARKUP = re.compile(
    r"<tool_call>.*?(?:</tool_call>|\Z)|<function=.*?(?:</function>|\Z)|(?:\[TOOL_CALLS\]|<\|python_tag\|>).*",
    re.DOTALL,
)
"""How the templates of open models write tool calls: Hermes and Qwen, Llama's function tags, Mistral, Llama."""
_SHAREGPT: Mapping[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "observation": "tool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One conversation of a file: ``Record(messages=(…,), line=3, fields={"task": "guess/train/7"})``."""

    messages: tuple[Message, ...]
    line: int
    fields: Mapping[str, Any] = NOTHING
    """Everything else that stood in the object."""


def to_record(
    trajectory: Trajectory, decode: Callable[[Sequence[int]], str], *, system: str | None = None
) -> dict[str, Any]:
    """Return `trajectory` as a JSON object; `decode` turns sampled ids into text, without special tokens.

    An assistant message is what was sampled, as text. Calls that were written in a tool markup stand in
    `tool_calls` and no longer in the text, so that a chat template writes them once, and the observation after
    them is a tool message; calls written in words (ReAct, code) stay words, and the observation a user message.
    A failure has no reward.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    role = "user"
    for turn in trajectory.turns:
        messages.append({"role": role, "content": as_text(turn.observation)})
        text = decode(turn.completion.token_ids)
        beside = MARKUP.sub("", text).strip()
        has_calls = bool(turn.action.tool_calls) and beside != text.strip()
        said: dict[str, Any] = {"role": "assistant", "content": beside if has_calls else text}
        if has_calls:
            said["tool_calls"] = [_write_call(call) for call in turn.action.tool_calls]
        messages.append(said)
        role = "tool" if has_calls else "user"
    record: dict[str, Any] = {"messages": messages, "task": trajectory.task.id}
    if isinstance(trajectory.outcome, Score):
        record |= {"reward": trajectory.outcome.value, "is_success": trajectory.outcome.is_success}
    return record


def write_messages(
    trajectories: Iterable[Trajectory], decode: Callable[[Sequence[int]], str], *, system: str | None = None
) -> Iterator[str]:
    """Yield one line of JSON, ending in a newline, for each of `trajectories`; one for each seat where several act."""
    for trajectory in trajectories:
        for part in by_seat(trajectory):
            yield json.dumps(to_record(part, decode, system=system), ensure_ascii=False) + "\n"


def read_messages(lines: Iterable[str], *, source: str = "messages") -> list[Record]:
    """Return the conversations of a messages or ShareGPT file, in order; blank lines are allowed.

    Raises `DataError` with `source` and the line number for anything that is not such an object, and when
    there is no conversation at all. Every conversation must have an assistant message with something in it.
    """
    records = [
        _record(line, f"{source} line {number}", number)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not records:
        raise DataError(f"conversations of {source}: got none; give a file with one JSON object per line")
    return records


def _record(line: str, where: str, number: int) -> Record:
    try:
        loaded: object = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{where}: got no JSON ({error}); write one object per line") from None
    found = _object(loaded, where)
    keys = [key for key in ("messages", "conversations") if key in found]
    if len(keys) != 1:
        raise DataError(f"{where}: got the keys {sorted(found)}; give either messages or conversations")
    entries = found[keys[0]]
    if not isinstance(entries, list):
        raise DataError(f"{where}: got {keys[0]} of type {type(entries).__name__}; give a list")
    read = _message if keys[0] == "messages" else _sharegpt
    messages = tuple(read(_object(entry, where), where) for entry in cast(list[object], entries))
    if not any(m.role == "assistant" and (m.tool_calls or as_text(m.content).strip()) for m in messages):
        raise DataError(f"{where}: got no assistant message with content; there is nothing to learn from")
    return Record(
        messages=messages, line=number, fields={key: value for key, value in found.items() if key != keys[0]}
    )


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: got {type(value).__name__} instead of an object; write {{...}}")
    return cast(dict[str, Any], value)


def _role(name: object, roles: Mapping[str, Role], where: str) -> Role:
    if not isinstance(name, str) or name not in roles:
        raise DataError(f"{where}: got the role {name!r}; choose from {', '.join(roles)}")
    return roles[name]


def _message(entry: Mapping[str, Any], where: str) -> Message:
    role = _role(entry.get("role"), _ROLES, where)
    calls = entry.get("tool_calls") or []
    if not isinstance(calls, list) or (calls and role != "assistant"):
        raise DataError(
            f"{where}: got tool_calls {calls!r} of role {role}; give a list, to the assistant only"
        )
    read = tuple(_call(_object(call, where), where) for call in cast(list[object], calls))
    text = _text(entry.get("content"), where, may_be_empty=bool(read))
    return Message(role=role, content=(Text(text=text),), tool_calls=read)


def _sharegpt(entry: Mapping[str, Any], where: str) -> Message:
    role = _role(entry.get("from"), _SHAREGPT, where)
    return Message(role=role, content=(Text(text=_text(entry.get("value"), where, may_be_empty=False)),))


def _text(content: object, where: str, *, may_be_empty: bool) -> str:
    """Return a string, or the text parts of a list of parts; `may_be_empty` also admits None."""
    if isinstance(content, str):
        return content
    if content is None and may_be_empty:
        return ""
    if isinstance(content, list):
        parts = [_object(part, where) for part in cast(list[object], content)]
        texts = [part.get("text") for part in parts]
        if all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
            return "".join(cast(list[str], texts))
    raise DataError(f"{where}: got the content {content!r:.80}; give a string or a list of text parts")


def _call(entry: Mapping[str, Any], where: str) -> ToolCall:
    function = _object(entry.get("function", entry), where)
    name, arguments = function.get("name"), function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(
                f"{where}: got tool arguments that are no JSON ({error}); write an object"
            ) from None
    if not isinstance(name, str) or not name:
        raise DataError(f"{where}: got the tool name {name!r}; give a string")
    return ToolCall(name=name, arguments=_object(arguments, where))


def _write_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}
    return {"type": "function", "function": function}
