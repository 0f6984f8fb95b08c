"""Read actions out of completions, and write them the way they are read.

Every parser takes any string and returns an `Action`; what cannot be read becomes `Action.error`, a line for the
model that says what was wrong. Nothing here knows an environment: arguments are checked where the tool is. A parser
never raises and never guesses.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from quintain.errors import DataError
from quintain.types import Action, ToolCall, ToolSpec

THINK = ["<think>", "</think>"]
LONGEST_READ = 1 << 15
"""Characters of tool calls or ReAct text in a completion; longer is an error, so that reading is quick."""
MAX_CALLS, MAX_BRACKETS, DEEPEST, SHOWN, MAX_LISTED = 64, 2_048, 32, 60, 20
OPENING, CLOSING = "<tool_call>", "</tool_call>"
CALL_FORM = '<tool_call>{"name": NAME, "arguments": {...}}</tool_call>'
REACT_FORM = "Write `Action:` and then the action, for example:\nThought: why\nAction: name[argument]"
_ACTION = re.compile(r"^[ \t]*Action:", re.MULTILINE)
_OBSERVATION = re.compile(r"^[ \t]*Observation:", re.MULTILINE)
_NAMED = re.compile(r"([A-Za-z_][\w.-]*)\[(.*)\]", re.DOTALL)
_LARGE = re.compile(r"[eE]\+?\d{2}|\d{200}")  # without either, a number is below 1e209
_SURROGATE = re.compile("[\ud800-\udfff]")


class UnreadableError(ValueError):
    """JSON that is not accepted; the message is for the model. It does not leave this module's parsers."""


def parse_text(text: str) -> Action:
    """Return the whole completion, stripped, as the action."""
    return Action(text=text.strip())


def write_text(action: Action) -> str:
    """Return the text of `action`.

    Raises:
        DataError: `action` is a tool call, which plain text has no form for.
    """
    if action.tool_calls:
        raise DataError(
            f"a plain text action has no tool calls: got {action.tool_calls[0].name}; take the agent tools, or auto"
        )
    return action.text


def parse_choice(text: str, legal: Sequence[str]) -> Action:
    """Return the legal action that `text` is, blanks around it aside."""
    said = text.strip()
    for action in legal:
        if action.strip() == said:
            return Action(text=action)
    listed = ", ".join(legal[:MAX_LISTED]) + (", ..." if len(legal) > MAX_LISTED else "")
    return Action(text=said, error=f"not a legal action: got {quote(said)}; choose one of: {listed}")


def parse_tool_calls(text: str) -> Action:
    """Return the Hermes/Qwen tool calls in `text`: any number of ``<tool_call>{json}</tool_call>``.

    ``Action.text`` is the calls as they were written, or the whole text where there is none, thoughts left out: a
    call in a thought is none. If one call cannot be read, none is carried out.
    """
    text = leave_out_thoughts(text, (OPENING, CLOSING))
    start = text.find(OPENING)
    if start < 0:
        if CLOSING in text or "<tool_call" in text:
            return Action(text=text.strip(), error=f"a tool call is not written right; write {CALL_FORM}")
        return Action(text=text.strip())
    written = text[start:].strip()
    if len(written) > LONGEST_READ:
        problem = f"the tool calls are {len(written)} characters long; at most {LONGEST_READ} are read"
        return Action(text=written, error=problem)
    try:
        calls = tuple(_calls(written))
    except UnreadableError as error:
        return Action(text=written, error=str(error))
    return Action(text=written[: written.rfind(CLOSING) + len(CLOSING)], tool_calls=calls)


def leave_out_thoughts(text: str, call: tuple[str, str] = ("", "")) -> str:
    """Return `text` without its thoughts; what stands between the marks of a `call` is no thought.

    An end without a beginning ends a thought that the prompt began; one that does not end goes on to the last sign.
    """
    if THINK[1] not in text and THINK[0] not in text:
        return text
    kept: list[str] = []
    at, place = 0, "words"
    for mark in re.finditer("|".join(map(re.escape, (*THINK, *filter(None, call)))), text):
        if place == "thought":
            if mark[0] == THINK[1]:
                at, place = mark.end(), "words"
        elif place == "call":
            place = "words" if mark[0] == call[1] else place
        elif mark[0] == THINK[0]:
            kept.append(text[at : mark.start()])
            place = "thought"
        elif mark[0] == THINK[1]:
            kept, at = [], mark.end()
        elif mark[0] == call[0]:
            place = "call"
    return "".join(kept) if place == "thought" else "".join(kept) + text[at:]


def parse_react(text: str, tools: Sequence[ToolSpec] = ()) -> Action:
    """Return the first action of a ReAct completion (arXiv 2210.03629).

    The action is what follows the first line that starts with ``Action:``, up to a line ``Observation:`` or
    the end; thoughts are left out. With `tools` it must be ``name[argument]``: a JSON object is the
    arguments, any other argument is the value of the tool's only parameter (read as JSON unless the parameter
    is a string).
    """
    if len(text) > LONGEST_READ:
        return Action(error=f"the answer is {len(text)} characters long; at most {LONGEST_READ} are read")
    start = _ACTION.search(text)
    if start is None:
        return Action(text=text.strip(), error=f"there is no action. {REACT_FORM}")
    end = _OBSERVATION.search(text, start.end())
    said = text[start.end() : end.start() if end else len(text)].strip()
    if not said:
        return Action(error=f"the action is empty. {REACT_FORM}")
    if not tools:
        return Action(text=said)
    try:
        return Action(text=said, tool_calls=(_react_call(said, tools),))
    except UnreadableError as error:
        return Action(text=said, error=str(error))


def write_tool_calls(calls: Sequence[ToolCall], padding: str = "") -> str:
    """Return `calls` as `parse_tool_calls` reads them; `padding` (a newline for Qwen) surrounds the JSON.

    Raises:
        DataError: an argument is not JSON.
    """
    return padding.join(f"{OPENING}{padding}{_call_json(call)}{padding}{CLOSING}" for call in calls)


def write_react(action: Action, thought: str = "") -> str:
    """Return `action` as `parse_react` reads it, after `thought` if there is one.

    Raises:
        DataError: `action` is more than one tool call, or an argument is not JSON.
    """
    if len(action.tool_calls) > 1:
        raise DataError(f"a ReAct action is one tool call: got {len(action.tool_calls)}; write one per turn")
    said = action.text
    if action.tool_calls:
        call = action.tool_calls[0]
        said = f"{call.name}[{json_text(call.arguments) if call.arguments else ''}]"
    return f"Thought: {thought}\nAction: {said}" if thought else f"Action: {said}"


def parse_tags(text: str, tools: Sequence[ToolSpec]) -> Action:
    """Return the one call that `text` ends with, as Search-R1 writes it: ``<think>why</think><search>query</search>``.

    The tag names one of `tools`; what stands in it is read as `parse_react` reads an argument. Tags that are not
    closed, that stand in each other or come twice are errors, and so is text after the call: all of it is trained on.
    """
    if len(text) > LONGEST_READ:
        return Action(error=f"the answer is {len(text)} characters long; at most {LONGEST_READ} are read")
    names = [tool.name for tool in tools]
    form = f"write <think>why</think> and then one of {', '.join(f'<{name}>…</{name}>' for name in names)}"
    said = text.strip()
    marks = re.findall(rf"</?(?:think|{'|'.join(map(re.escape, names))})>", said)
    inner = [mark for mark in marks if "think" not in mark]
    if not inner:
        return Action(text=said, error=f"there is no call; {form}")
    thoughts = marks[: len(marks) - len(inner)]
    name = inner[0].strip("<>/")
    if inner != [f"<{name}>", f"</{name}>"] or marks != [*thoughts, *inner] or thoughts not in ([], THINK):
        return Action(
            text=said,
            error=f"the tags {' '.join(marks[:MAX_LISTED])} are not one thought and one call; {form}",
        )
    start = said.index(inner[0])
    body, _, rest = said[start + len(inner[0]) :].partition(inner[1])
    if rest.strip():
        return Action(text=said[start:], error=f"there is text after {inner[1]}; end with the call")
    try:
        return Action(text=said[start:], tool_calls=(_react_call(f"{name}[{body.strip()}]", tools),))
    except UnreadableError as error:
        return Action(text=said[start:], error=str(error))


def write_tags(action: Action, thought: str = "") -> str:
    """Return `action` as `parse_tags` reads it, after `thought` if there is one; a text alone stands bare in its tag.

    Raises:
        DataError: `action` is not one tool call, or an argument is not JSON.
    """
    if len(action.tool_calls) != 1:
        raise DataError(f"a call in tags: got {len(action.tool_calls)} calls; make one in each turn")
    call = action.tool_calls[0]
    values = list(call.arguments.values())
    is_bare = len(values) == 1 and isinstance(values[0], str) and not values[0].lstrip().startswith("{")
    body = str(values[0]) if is_bare else json_text(call.arguments) if values else ""
    return f"<think>{thought}</think>" * bool(thought) + f"<{call.name}>{body}</{call.name}>"


def tools_text(tools: Sequence[ToolSpec], form: str = CALL_FORM) -> str:
    """Return the instruction for `tools`, called as `form`, that stands in for a chat template without them."""
    schemas = (
        json_text({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
        for tool in tools
    )
    return "\n".join(("Tools, one JSON schema per line:", *schemas, f"To call a tool, write {form}"))


def quote(text: str) -> str:
    """Return `text` quoted for an error message, cut to a readable length."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


def read_json(text: str) -> Any:
    """Return the value of strict JSON: no duplicate keys, no NaN or infinity, bounded depth, valid Unicode.

    Raises:
        UnreadableError: `text` is not that; the message says where or why.
    """
    brackets = text.count("[") + text.count("{")
    if brackets > MAX_BRACKETS:
        raise UnreadableError(f"holds more than {MAX_BRACKETS} brackets")
    parse_float = _finite if _LARGE.search(text) else None
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=parse_float, parse_constant=_finite)
    except UnreadableError:
        raise
    except json.JSONDecodeError as error:
        near = quote(text[max(0, error.pos - 10) : error.pos + 20])
        raise UnreadableError(
            f"is not valid JSON: {error.msg} at character {error.pos}, near {near}"
        ) from error
    except RecursionError as error:
        raise UnreadableError(f"is nested deeper than {DEEPEST} levels") from error
    except ValueError as error:  # an integer of thousands of digits
        raise UnreadableError("holds a number that is too long") from error
    if brackets > DEEPEST and depth_of(value) > DEEPEST:
        raise UnreadableError(f"is nested deeper than {DEEPEST} levels")
    if "\\u" in text and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise UnreadableError("holds half of a surrogate pair")
    return value


def depth_of(value: Any) -> int:
    """Return how many containers are nested in JSON `value`; 0 for a scalar."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise UnreadableError(f"has the key {quote(twice)} twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnreadableError(f"holds {quote(text)}, which is not a finite number")
    return value


def _calls(text: str) -> Iterator[ToolCall]:
    """Yield the calls of `text`, which starts with an opening tag."""
    number, position = 0, 0
    while (start := text.find(OPENING, position)) >= 0:
        number += 1
        body_start = start + len(OPENING)
        end = text.find(CLOSING, body_start)
        if end < 0:
            raise UnreadableError(f"tool call {number} has no closing {CLOSING}; write {CALL_FORM}")
        if number > MAX_CALLS:
            raise UnreadableError(f"there are more than {MAX_CALLS} tool calls; make fewer at once")
        try:
            yield _call(text[body_start:end])
        except UnreadableError as error:
            raise UnreadableError(f"tool call {number} {error}; write {CALL_FORM}") from error
        position = end + len(CLOSING)


def _call(body: str) -> ToolCall:
    return call_of(read_json(body.strip()))


def call_of(value: Any, *, arguments_key: str = "arguments") -> ToolCall:
    """Return the tool call that JSON `value` is: ``name``, `arguments_key`, and maybe ``id`` and ``type: function``.

    Raises:
        UnreadableError: it is no call; the message continues a sentence that begins with "tool call 1".
    """
    if not isinstance(value, dict):
        raise UnreadableError(f"must be a JSON object: got {kind_of(value)}")
    fields = cast("dict[str, Any]", value)
    for key in fields:
        if key not in ("name", arguments_key, "id") and (key, fields[key]) != ("type", "function"):
            raise UnreadableError(f"has the unknown key {quote(key)}; its keys are name and {arguments_key}")
    name, arguments = fields.get("name"), fields.get(arguments_key, {})
    if not isinstance(name, str) or not name:
        got = kind_of(name) if "name" in fields else "none"
        raise UnreadableError(f"needs a name that is a string: got {got}")
    if not isinstance(arguments, dict):
        raise UnreadableError(f"needs {arguments_key} that are a JSON object: got {kind_of(arguments)}")
    given = fields.get("id")
    return ToolCall(
        name=name, arguments=cast("dict[str, Any]", arguments), id=given if isinstance(given, str) else ""
    )


def _react_call(said: str, tools: Sequence[ToolSpec]) -> ToolCall:
    named = _NAMED.fullmatch(said)
    if named is None:
        raise UnreadableError(f"the action must be name[argument]: got {quote(said)}")
    name, argument = named[1], named[2].strip()
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        known = ", ".join(tool.name for tool in tools[:MAX_LISTED])
        raise UnreadableError(f"there is no tool {quote(name)}; tools: {known}")
    if not argument:
        return ToolCall(name=name)
    try:
        return ToolCall(
            name=name, arguments=_react_arguments(argument, tool.parameters.get("properties", {}))
        )
    except UnreadableError as error:
        raise UnreadableError(f"the argument of {name} {error}") from error


def _react_arguments(argument: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
    if argument.startswith("{"):
        return cast("dict[str, Any]", read_json(argument))
    if len(properties) != 1:
        keys = ", ".join(properties) or "none"
        raise UnreadableError(f"must be a JSON object with the keys {keys}: got {quote(argument)}")
    ((key, schema),) = properties.items()
    if schema.get("type") == "string":
        return {key: argument}
    return {key: read_json(argument)}


def kind_of(value: Any) -> str:
    """Return the JSON name of the type of `value`."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _call_json(call: ToolCall) -> str:
    text = json_text({"name": call.name, "arguments": call.arguments})
    return text.replace(OPENING, "\\u003ctool_call>").replace(CLOSING, "\\u003c/tool_call>")


def json_text(value: Any) -> str:
    """Return `value` as JSON in one line.

    Raises:
        DataError: it holds what is not JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain_mapping)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"writing tool arguments: got {quote(repr(value))}, which is not JSON: {error}"
        ) from error


def _plain_mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"{type(value).__name__} has no JSON form")
