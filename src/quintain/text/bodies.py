"""What stands inside the marks of a tool call, read in each of the ways that model families have.

A reader is data of a format (`kind` and its options); what it finds is name, arguments and id of each call, or what
is wrong with it, in words for the model. None raises, none guesses a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import unescape
from itertools import pairwise
from typing import Any, Literal, cast

import regex

from quintain.text.literals import read_calls, read_literal
from quintain.text.parse import DEEPEST, UnreadableError, kind_of, quote, read_json
from quintain.types import NOTHING

CallStatus = Literal[
    "ok", "invalid_json", "unclosed", "missing_name", "malformed", "unknown_tool", "mistyped", "too_many"
]
NAME_KEYS = ("name", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters")
ID_KEYS = ("id", "tool_call_id", "call_id")
OTHER_KEYS = ("type", "index", "function")
BETWEEN_ARGUMENTS = regex.compile(r"\s*")
BETWEEN = regex.compile(r"[\s,;]*")


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call in a body: ``FoundCall("guess", {"number": 16})``, or what is wrong with it."""

    name: str = ""
    arguments: Mapping[str, Any] | None = None
    id: str = ""
    status: CallStatus = "ok"
    problem: str = ""


class BodyError(ValueError):
    """A body that is no call, with the status that it gets; it does not leave this module."""

    def __init__(self, status: CallStatus, problem: str) -> None:
        super().__init__(problem)
        self.status: CallStatus = status


@dataclass(frozen=True, slots=True)
class Body:
    """What stands between the marks of a call, and what the opening mark said."""

    text: str
    marks: Mapping[str, str]
    """Groups of the opening mark: name, id."""
    schemas: Mapping[str, Mapping[str, Any]]
    """Schemas of the arguments of the tools that are there, by name; empty where nobody says."""


def read_body(reader: Mapping[str, Any], body: Body) -> list[FoundCall]:
    """Return the calls in `body`, read as `reader` says; at least one."""
    try:
        calls = _KINDS[reader["kind"]](body, reader)
        if not calls:
            raise BodyError("malformed", "holds no call")
    except BodyError as error:
        return [FoundCall(name=body.marks.get("name", ""), status=error.status, problem=str(error))]
    except UnreadableError as error:
        return [FoundCall(name=body.marks.get("name", ""), status="invalid_json", problem=str(error))]
    return [_check_call(call, body.schemas) for call in calls]


def is_inside(reader: Mapping[str, Any], text: str) -> bool:
    """Return whether `text`, a part of a body, ends inside a value, where a closing mark closes nothing."""
    kind = reader["kind"]
    if kind == "xml":
        if "inside" not in reader:
            return False
        opened, closed = cast("Sequence[str]", reader["inside"])
        return text.rfind(opened) > text.rfind(closed)
    if kind == "literal":
        return any(text.count(mark) % 2 for mark in reader["quotes"])
    pattern = _STRINGS if kind == "json" else _BOTH_STRINGS
    return any(not found[0].endswith(found[0][0]) or len(found[0]) == 1 for found in pattern.finditer(text))


_STRINGS = regex.compile(r'"(?:[^"\\]|\\.)*+"?', regex.DOTALL)
_BOTH_STRINGS = regex.compile(r""""(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?""", regex.DOTALL)


def type_value(text: str, schema: Mapping[str, Any], root: Mapping[str, Any] = NOTHING) -> tuple[Any, bool]:
    """Return the value that `text` is by JSON `schema`, and whether it is of a type that the schema has.

    A text where the schema has no type or has texts only; ``"007"`` stays a text where a text is allowed.
    """
    types = tuple(dict.fromkeys(_types(schema, root, 0)))
    if not types:
        return _match_enum(text, schema), True
    for name in types:
        if name != "string":
            for value in _values(text.strip()):
                if _is(value, name):
                    return int(value) if name == "integer" else value, True
    return text, "string" in types


def _check_call(call: FoundCall, schemas: Mapping[str, Mapping[str, Any]]) -> FoundCall:
    if call.status == "ok" and schemas and call.name not in schemas:
        known = ", ".join(list(schemas)[:20])
        problem = f"there is no tool {quote(call.name)}; tools: {known}"
        return replace(call, status="unknown_tool", problem=problem)
    return call


def _json_calls(body: Body, reader: Mapping[str, Any]) -> list[FoundCall]:
    text = body.text.strip()
    if reader.get("fence"):
        fenced = regex.fullmatch(r"```(?:json)?\s*(.*?)\s*```", text, regex.DOTALL)
        if fenced is None:
            raise BodyError("malformed", "has no arguments between ```json and ```")
        text = fenced[1]
    marks = body.marks
    if "call" in reader and (head := _compile_pattern(reader["call"]).match(text)) is not None:
        marks, text = (
            {key: said for key, said in head.groupdict().items() if said},
            text[head.end() :].strip(),
        )
    if "name" in marks:
        if not text:
            raise BodyError("invalid_json", "has no arguments; write {} where there are none")
        return [_call(marks["name"], read_json(text), marks.get("id", ""))]
    if not text:
        raise BodyError("malformed", "is empty")
    value = _json_values(text)
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    if reader.get("keyed"):
        return [call for item in items for call in _read_keyed(item)]
    return [_object_call(item) for item in items]


def _json_values(text: str) -> Any:
    """Return the JSON value that `text` is, or the list of those that stand in it one behind the other."""
    if text[0] == "{" and text[-1] == "}":
        spans = list(objects_in(text))
        between = [text[end:start] for (_, end), (start, _) in pairwise(spans)]
        if len(spans) > 1 and all(BETWEEN.fullmatch(part) for part in between):
            return [read_json(text[start:end]) for start, end in spans]
    return read_json(text)


_STRUCTURE = regex.compile(r'[{}]|"(?:[^"\\]|\\.)*+"?', regex.DOTALL)


def objects_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the outermost ``{...}`` in `text` that are closed, in time linear in its length."""
    depth, start = 0, 0
    for found in _STRUCTURE.finditer(text):
        if found[0] == "{":
            start = found.start() if not depth else start
            depth += 1
        elif found[0] == "}" and depth:
            depth -= 1
            if not depth:
                yield start, found.end()


def _object_call(value: Any) -> FoundCall:
    if not isinstance(value, dict):
        raise BodyError("malformed", f"must be a JSON object: got {kind_of(value)}")
    fields = cast("dict[str, Any]", value)
    inner = fields.get("function")
    if isinstance(inner, dict):
        fields = {**{key: fields[key] for key in fields if key in ID_KEYS}, **cast("dict[str, Any]", inner)}
    elif isinstance(inner, str) and not any(key in fields for key in NAME_KEYS):
        fields = {**fields, "name": inner}
    if fields.get("type", "function") != "function":
        raise BodyError("malformed", f"has the type {quote(str(fields['type']))}; it is a function")
    known = (*NAME_KEYS, *ARGUMENT_KEYS, *ID_KEYS, *OTHER_KEYS)
    unknown = next((key for key in fields if key not in known), None)
    if unknown is not None:
        raise BodyError("malformed", f"has the unknown key {quote(unknown)}; its keys are name and arguments")
    name = _only(fields, NAME_KEYS)
    if not isinstance(name, str) or not name:
        got = kind_of(name) if any(key in fields for key in NAME_KEYS) else "none"
        raise BodyError("missing_name", f"needs a name that is a string: got {got}")
    given = [fields[key] for key in ID_KEYS if isinstance(fields.get(key), str | int)]
    return _call(name, _only(fields, ARGUMENT_KEYS, {}), str(given[0]) if given else "")


def _only(fields: Mapping[str, Any], keys: Sequence[str], default: Any = None) -> Any:
    given = [key for key in keys if key in fields]
    if len(given) > 1:
        raise BodyError("malformed", f"has both {given[0]} and {given[1]}; write one")
    return fields[given[0]] if given else default


def _read_keyed(value: Any) -> Iterator[FoundCall]:
    """Yield the calls of ``{name: arguments}``."""
    if not isinstance(value, dict) or not value:
        raise BodyError(
            "malformed", f"must be an object with the name of a tool as its key: got {kind_of(value)}"
        )
    for name, arguments in cast("dict[str, Any]", value).items():
        yield _call(name, arguments, "")


def _call(name: str, arguments: Any, id: str) -> FoundCall:
    if isinstance(arguments, str):  # JSON in a text, as some models write it
        arguments = read_json(arguments)
    if not isinstance(arguments, dict):
        raise BodyError("malformed", f"needs arguments that are a JSON object: got {kind_of(arguments)}")
    if not name.strip():
        raise BodyError("missing_name", "needs the name of a tool")
    return FoundCall(name=name.strip(), arguments=cast("dict[str, Any]", arguments), id=id)


def _xml_calls(body: Body, reader: Mapping[str, Any]) -> list[FoundCall]:
    text, name = body.text, body.marks.get("name", "")
    if "call" in reader:
        head = _compile_pattern(reader["call"]).match(text)
        if head is None:
            raise BodyError("missing_name", "does not begin with the name of a tool")
        name, text = head["name"], text[head.end() :]
    if not name.strip():
        raise BodyError("missing_name", "needs the name of a tool")
    name = name.strip()
    root = body.schemas.get(name, NOTHING)
    properties = cast("Mapping[str, Any]", root.get("properties", NOTHING))
    arguments: dict[str, Any] = {}
    wrong = ""
    for parameter in _parameters(text, reader):
        key, written = (parameter["key"] or "").strip(), parameter.get("value") or ""
        if reader.get("escaped"):
            key = unescape(key)
        if key in arguments:
            raise BodyError("malformed", f"has the argument {quote(key)} twice")
        said = parameter.get("text") or parameter.get("type")
        if said in ("true", "string"):
            arguments[key] = written
            continue
        if said is not None:
            arguments[key] = read_json(written)
            continue
        arguments[key], fits = type_value(written, properties.get(key, NOTHING), root)
        if not fits and not wrong:
            wrong = f"has {quote(written)} for {key}, which is not of the type that the tool takes"
    return [FoundCall(name, arguments, body.marks.get("id", ""), "mistyped" if wrong else "ok", wrong)]


def _parameters(text: str, reader: Mapping[str, Any]) -> Iterator[Mapping[str, str | None]]:
    """Yield the groups of each parameter in `text`; between them and behind the last stands nothing else."""
    text, at = text.strip(), 0
    pattern, rest = _compile_pattern(reader["parameter"]), _compile_pattern(reader.get("rest", ""))
    while rest.fullmatch(text, at) is None:
        found = pattern.match(text, at)
        if found is None:
            raise BodyError(
                "malformed", f"has an argument that is not written right, near {quote(text[at:])}"
            )
        other = next((mark for mark in reader.get("never", ()) if mark in found["value"]), None)
        if other is not None:
            raise BodyError("malformed", f"has an argument that is not closed before {quote(other.strip())}")
        yield found.groupdict()
        blank = BETWEEN_ARGUMENTS.match(text, found.end())
        at = blank.end() if blank is not None else found.end()


def _read_nested_calls(body: Body, reader: Mapping[str, Any]) -> list[FoundCall]:
    """Return the one call of an element with an element for each argument, and further ones in these."""
    tags = regex.compile(regex.escape(reader["prefix"]) + r"<(/?)([^<>/\s]{1,200})>")
    name = body.marks["name"].strip()
    root = body.schemas.get(name, NOTHING)
    stack = [_Element("")]
    at = 0
    for tag in tags.finditer(body.text):
        stack[-1].text += body.text[at : tag.start()]
        at = tag.end()
        if not tag[1]:
            if len(stack) > DEEPEST:
                raise BodyError("malformed", f"is nested deeper than {DEEPEST} levels")
            stack.append(_Element(tag[2]))
        elif len(stack) == 1 or stack[-1].name != tag[2]:
            raise BodyError("malformed", f"closes {quote(tag[2])} where {quote(stack[-1].name)} is open")
        else:
            element = stack.pop()
            stack[-1].children.append((element.name, _element_value(element, reader["item"])))
    if len(stack) > 1 or (stack[0].text + body.text[at:]).strip():
        raise BodyError("malformed", "has text between its arguments, or an argument that is not closed")
    arguments = _object(stack[0].children)
    wrong = ""
    properties = cast("Mapping[str, Any]", root.get("properties", NOTHING))
    for key, value in arguments.items():
        arguments[key], fits = _type_nested(value, properties.get(key, NOTHING), root)
        if not fits and not wrong:
            wrong = f"has {quote(str(value))} for {key}, which is not of the type that the tool takes"
    return [FoundCall(name, arguments, "", "mistyped" if wrong else "ok", wrong)]


@dataclass(slots=True)
class _Element:
    name: str
    children: list[tuple[str, Any]] = field(default_factory=list)
    text: str = ""


def _element_value(element: _Element, item: str) -> Any:
    if not element.children:
        return element.text
    if element.text.strip():
        raise BodyError("malformed", f"has text between its arguments: {quote(element.text.strip())}")
    if all(key == item for key, _ in element.children):
        return [value for _, value in element.children]
    return _object(element.children)


def _object(children: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in children:
        if key in found:
            raise BodyError("malformed", f"has the argument {quote(key)} twice")
        found[key] = value
    return found


def _type_nested(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Any, bool]:
    if isinstance(value, str):
        return type_value(value, schema, root)
    if isinstance(value, list):
        item = cast("Mapping[str, Any]", schema.get("items", NOTHING))
        typed = [_type_nested(part, item, root) for part in cast("list[Any]", value)]
        return [part for part, _ in typed], all(fits for _, fits in typed)
    properties = cast("Mapping[str, Any]", schema.get("properties", NOTHING))
    fields = {
        key: _type_nested(part, properties.get(key, NOTHING), root)
        for key, part in cast("dict[str, Any]", value).items()
    }
    return {key: part for key, (part, _) in fields.items()}, all(fits for _, fits in fields.values())


def _literal_calls(body: Body, reader: Mapping[str, Any]) -> list[FoundCall]:
    value = read_literal(body.text.strip(), reader["quotes"], bare_keys=True)
    return [_call(body.marks["name"], value, "")]


def _python_calls(body: Body, reader: Mapping[str, Any]) -> list[FoundCall]:
    return [_call(name, arguments, "") for name, arguments in read_calls(body.text.strip())]


_KINDS: Mapping[str, Callable[[Body, Mapping[str, Any]], list[FoundCall]]] = {
    "json": _json_calls,
    "xml": _xml_calls,
    "nested": _read_nested_calls,
    "literal": _literal_calls,
    "python": _python_calls,
}


@cache
def _compile_pattern(pattern: str) -> Any:
    return regex.compile(pattern, regex.DOTALL)


def _types(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield the JSON types that `schema` allows, those of its alternatives, too."""
    said = schema.get("type")
    yield from [said] if isinstance(said, str) else [name for name in said or () if isinstance(name, str)]
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#/") and depth < DEEPEST:
        inner: Any = root
        for key in target[2:].split("/"):
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        if isinstance(inner, Mapping):
            yield from _types(cast("Mapping[str, Any]", inner), root, depth + 1)
    for several in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(several) or ():
            if isinstance(choice, Mapping) and depth < DEEPEST:
                yield from _types(cast("Mapping[str, Any]", choice), root, depth + 1)
    if schema.get("nullable"):
        yield "null"


def _match_enum(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value of an `enum` without a type that `text` is; else the text."""
    choices = cast("Sequence[Any]", schema.get("enum") or ())
    if text in choices:
        return text
    return next((value for value in _values(text.strip()) if value in choices), text)


def _values(text: str) -> Iterator[Any]:
    """Yield what `text` is as JSON, and as a literal of Python where it is none."""
    for read in (read_json, read_literal):
        try:
            yield read(text)
        except UnreadableError:
            continue
        return


def _is(value: Any, name: str) -> bool:
    """Return whether JSON `value` is of the type `name`; a whole number written as ``3.0`` is an integer."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: Mapping[str, Any] = {"number": int | float, "null": type(None), "object": dict, "array": list}
    return name in kinds and isinstance(value, kinds[name])
