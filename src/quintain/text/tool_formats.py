"""How model families write tool calls: Hermes/Qwen tags, Llama's bare JSON, Mistral's list after a marker.

A format reads any string (what cannot be read is `Action.error`, in words for the model) and writes what it reads
back. Several calls may stand in one turn in each. A parser never raises and never guesses; if one call of a turn
cannot be read, none is carried out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quintain.errors import DataError, UsageError, suggestion
from quintain.text.parse import (
    CALL_FORM,
    LONGEST_READ,
    MAX_CALLS,
    UnreadableError,
    call_of,
    json_text,
    leave_out_thoughts,
    parse_tool_calls,
    quote,
    read_json,
    write_tool_calls,
)
from quintain.types import Action, ToolCall

PYTHON_TAG, TOOL_CALLS, ARGS = "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]"
LLAMA_FORM = '{"name": NAME, "parameters": {...}}'
MISTRAL_FORM = '[TOOL_CALLS][{"name": NAME, "arguments": {...}}]'
NAMED_FORM = "[TOOL_CALLS]NAME[ARGS]{...}"
_LLAMA_START = re.compile(r"\s*(\[\s*)?\{")
_STRUCTURE = re.compile(r'[{}"\\]')
_BETWEEN = re.compile(r"[\s,;\[\]]*")
_NAMED = re.compile(r"\s*([A-Za-z_][\w.-]*)(?:\[CALL_ID\]\w+)?\[ARGS\](.*)", re.DOTALL)
_MISTRAL_THOUGHT = re.compile(r"\A\s*\[THINK\].*?(?:\[/THINK\]|\Z)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A way to write tool calls: ``parse(write(calls, "")).tool_calls == tuple(calls)``."""

    name: str
    form: str
    """One call, as it is shown to the model."""
    parse: Callable[[str], Action]
    write: Callable[[Sequence[ToolCall], str], str]
    """(calls, what the template puts around them) → text; raises `DataError` for what is not JSON"""
    opening: str
    """What the first call begins with."""


def parse_llama_calls(text: str) -> Action:
    """Return the Llama 3 tool calls that `text` is: ``{"name": ..., "parameters": {...}}``, one or several.

    An answer that does not begin with an object and holds no ``<|python_tag|>`` is plain text. Calls follow
    each other with a comma, a semicolon, brackets or blanks between them.
    """
    said = leave_out_thoughts(text).strip()
    tagged = said.find(PYTHON_TAG)
    if tagged < 0 and not _LLAMA_START.match(said):
        return Action(text=said)
    written = said[max(tagged, 0) :]
    return _read(written, _llama_calls, LLAMA_FORM)


def parse_mistral_calls(text: str) -> Action:
    """Return the Mistral tool calls in `text`: ``[TOOL_CALLS]`` and a JSON list, or ``name[ARGS]{...}``.

    Text before the first marker is ignored, and thoughts are.
    """
    text = leave_out_thoughts(_MISTRAL_THOUGHT.sub("", text))
    start = text.find(TOOL_CALLS)
    if start < 0:
        return Action(text=text.strip())
    return _read(text[start:].strip(), _mistral_calls, MISTRAL_FORM)


def write_llama_calls(calls: Sequence[ToolCall], padding: str = "") -> str:
    """Return `calls` as `parse_llama_calls` reads them, after `padding` (``<|python_tag|>`` or nothing)."""
    return padding + "; ".join(
        json_text({"name": call.name, "parameters": call.arguments}).replace("<|", "\\u003c|")
        for call in calls
    )


def write_mistral_calls(calls: Sequence[ToolCall], padding: str = "") -> str:
    """Return `calls` as one list after the marker; `padding` (a blank or nothing) stands between."""
    listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return TOOL_CALLS + padding + _escape(json_text(listed))


def write_named_calls(calls: Sequence[ToolCall], padding: str = "") -> str:
    """Return `calls` as newer Mistral models write them: ``[TOOL_CALLS]name[ARGS]{...}`` each.

    Raises:
        DataError: a name would not be read back, or an argument is not JSON.
    """
    for call in calls:
        if not _NAME.fullmatch(call.name):
            raise DataError(f"writing a tool call: got the name {quote(call.name)}; use letters and digits")
    return "".join(
        f"{TOOL_CALLS}{padding}{call.name}{ARGS}{_escape(json_text(call.arguments))}" for call in calls
    )


FORMATS: Mapping[str, CallFormat] = {
    "hermes": CallFormat("hermes", CALL_FORM, parse_tool_calls, write_tool_calls, "<tool_call>"),
    "llama": CallFormat("llama", LLAMA_FORM, parse_llama_calls, write_llama_calls, "{"),
    "mistral": CallFormat("mistral", MISTRAL_FORM, parse_mistral_calls, write_mistral_calls, TOOL_CALLS),
    "mistral-named": CallFormat(
        "mistral-named", NAMED_FORM, parse_mistral_calls, write_named_calls, TOOL_CALLS
    ),
}
"""Formats, by name."""


def format_named(name: str) -> CallFormat:
    """Return the format called `name`.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"format of tool calls: got {name!r}; {suggestion(name, FORMATS)}")
    return FORMATS[name]


def _escape(text: str) -> str:
    return text.replace(TOOL_CALLS, "\\u005bTOOL_CALLS]").replace(ARGS, "\\u005bARGS]")


def _read(written: str, calls_of: Callable[[str], Iterator[ToolCall]], form: str) -> Action:
    """Return what `calls_of` finds in `written`, or an action that says what is wrong."""
    if len(written) > LONGEST_READ:
        problem = f"the tool calls are {len(written)} characters long; at most {LONGEST_READ} are read"
        return Action(text=written, error=problem)
    calls: list[ToolCall] = []
    try:
        for call in calls_of(written):
            calls.append(call)
            if len(calls) > MAX_CALLS:
                problem = f"there are more than {MAX_CALLS} tool calls; make fewer at once"
                return Action(text=written, error=problem)
    except UnreadableError as error:
        return Action(text=written, error=f"tool call {len(calls) + 1} {error}; write {form}")
    if not calls:
        return Action(text=written, error=f"there is no tool call after the marker; write {form}")
    return Action(text=written, tool_calls=tuple(calls))


def _llama_calls(written: str) -> Iterator[ToolCall]:
    position = 0
    text = written.replace(PYTHON_TAG, " ")
    for start, end in json_objects(text):
        if not _BETWEEN.fullmatch(text, position, start):
            raise UnreadableError(f"has text before it: got {quote(text[position:start].strip())}")
        yield call_of(read_json(text[start:end]), arguments_key="parameters")
        position = end
    if not _BETWEEN.fullmatch(text, position):
        raise UnreadableError(f"is not a whole JSON object: got {quote(text[position:].strip())}")


def _mistral_calls(written: str) -> Iterator[ToolCall]:
    for body in written.split(TOOL_CALLS)[1:]:
        named = _NAMED.fullmatch(body)
        value = read_json((named[2] if named else body).strip())
        if named:
            yield call_of({"name": named[1], "arguments": value})
        elif isinstance(value, list):
            for item in value:
                yield call_of(item)
        else:
            raise UnreadableError("must stand in a JSON list")


def json_objects(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the outermost ``{...}`` in `text` that are closed, in time linear in its length."""
    depth, start, escaped, is_quoted = 0, 0, -1, False
    for match in _STRUCTURE.finditer(text):
        at, sign = match.start(), match[0]
        if is_quoted:
            if sign == "\\" and at != escaped:
                escaped = at + 1
            elif sign == '"' and at != escaped:
                is_quoted = False
        elif sign == '"':
            is_quoted = depth > 0
        elif sign == "{":
            start = at if not depth else start
            depth += 1
        elif sign == "}" and depth:
            depth -= 1
            if not depth:
                yield start, at + 1
