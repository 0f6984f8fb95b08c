"""Checks arguments against a JSON schema that came from elsewhere, in words that a model can act on.

Types, required and unknown names, enumerations, bounds, lengths, patterns, nested objects and lists, alternatives and
references are checked. The one rule: a keyword that is not known here forbids nothing; the server has the last word.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from quintain.errors import suggestion

LONGEST = 60
DEEPEST = 32
TYPES: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and float(cast(float, value)).is_integer(),
    "number": lambda value: _is_number(value),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def complaint(tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return what is wrong with `arguments` of `tool`, at most three things; an empty text when nothing is.

    Example: ``complaint("add", {"type": "object", "required": ["a"]}, {})`` is ``"add(a): missing"``.
    """
    found: list[str] = []
    for place, what in _faults(schema, dict(arguments), "", schema, 0):
        found.append(f"{tool}({place}): {what}" if place else f"{tool}: {what}")
        if len(found) == 3:
            break
    return "; ".join(found)


def _faults(
    schema: Any, value: object, place: str, root: Mapping[str, Any], depth: int
) -> Iterator[tuple[str, str]]:
    """Yield where and why `value` does not fit `schema`."""
    if schema is False:
        yield place, "nothing is allowed here"
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return
    rules = cast("Mapping[str, Any]", schema)
    if "$ref" in rules:
        yield from _faults(_target(rules["$ref"], root), value, place, root, depth + 1)
    wanted = rules.get("type")
    names: list[str] = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if names and not any(name in TYPES and TYPES[name](value) for name in names):
        yield place, f"expected {' or '.join(names)}, got {_short(value)}"
        return
    if "const" in rules and value != rules["const"]:
        yield place, f"expected {_short(rules['const'])}, got {_short(value)}"
    if "enum" in rules and not any(_same(value, each) for each in rules["enum"]):
        yield place, f"expected one of {_short(rules['enum'])}, got {_short(value)}"
    for part in rules.get("allOf", ()):
        yield from _faults(part, value, place, root, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        parts = rules.get(keyword)
        if parts and all(any(_faults(part, value, place, root, depth + 1)) for part in parts):
            yield place, f"expected one of {len(parts)} forms, got {_short(value)}"
    if isinstance(value, dict):
        yield from _in_object(rules, cast("dict[str, Any]", value), place, root, depth)
    elif isinstance(value, list):
        yield from _in_list(rules, cast("list[Any]", value), place, root, depth)
    else:
        yield from _in_scalar(rules, value, place)


def _in_object(
    rules: Mapping[str, Any], value: Mapping[str, Any], place: str, root: Mapping[str, Any], depth: int
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the members of `value`."""
    known: Mapping[str, Any] = rules.get("properties") or {}
    more: Any = rules.get("additionalProperties", True)
    for name in rules.get("required", ()):
        if name not in value:
            yield _below(place, name), "missing"
    for name, member in value.items():
        if name in known:
            yield from _faults(known[name], member, _below(place, name), root, depth + 1)
        elif patterns := [
            part for text, part in rules.get("patternProperties", {}).items() if _matches(text, name)
        ]:
            yield from _faults({"allOf": patterns}, member, _below(place, name), root, depth + 1)
        elif more is False:
            near = suggestion(name, known) if known else "it takes no arguments"
            yield _below(place, name), f"unknown argument; {near}"
        else:
            yield from _faults(more, member, _below(place, name), root, depth + 1)


def _in_list(
    rules: Mapping[str, Any], value: Sequence[Any], place: str, root: Mapping[str, Any], depth: int
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the items of `value`."""
    yield from _length(rules, len(value), "Items", "items", place)
    fixed: Sequence[Any] = rules.get("prefixItems", ())
    for number, item in enumerate(value):
        part = fixed[number] if number < len(fixed) else rules.get("items", True)
        yield from _faults(part, item, _below(place, str(number)), root, depth + 1)


def _in_scalar(rules: Mapping[str, Any], value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a text or a number."""
    if isinstance(value, str):
        yield from _length(rules, len(value), "Length", "characters", place)
        pattern = rules.get("pattern")
        if isinstance(pattern, str) and not _matches(pattern, value):
            yield place, f"expected a text like {pattern}, got {_short(value)}"
    elif _is_number(value):
        number = float(cast(float, value))
        if not math.isfinite(number):
            yield place, f"expected a finite number, got {_short(value)}"
        for name, is_broken, words in (
            ("minimum", lambda bound: number < bound, "at least"),
            ("maximum", lambda bound: number > bound, "at most"),
            ("exclusiveMinimum", lambda bound: number <= bound, "more than"),
            ("exclusiveMaximum", lambda bound: number >= bound, "less than"),
        ):
            bound = rules.get(name)
            if _is_number(bound) and is_broken(bound):
                yield place, f"expected {words} {bound}, got {_short(value)}"


def _length(
    rules: Mapping[str, Any], length: int, keyword: str, noun: str, place: str
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the `length` of a text or a list."""
    least, most = rules.get(f"min{keyword}"), rules.get(f"max{keyword}")
    if isinstance(least, int) and length < least:
        yield place, f"expected at least {least} {noun}, got {length}"
    if isinstance(most, int) and length > most:
        yield place, f"expected at most {most} {noun}, got {length}"


def _target(reference: object, root: Mapping[str, Any]) -> Any:
    """Return the part of `root` that `reference` (``#/$defs/Order``) names; True, which is anything, without one."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return True
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if part and (not isinstance(found, Mapping) or key not in found):
            return True
        found = found[key] if part else found
    return found


def _matches(pattern: str, text: str) -> bool:
    """Whether `pattern` is found in `text`; a pattern that Python cannot read forbids nothing."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(value: object, other: object) -> bool:
    """Whether two JSON values are equal; true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _below(place: str, name: str) -> str:
    """Return the place of member `name` of what is at `place`."""
    whole = f"{place}.{name}" if place else name
    return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}…"


def _short(value: object) -> str:
    """Return `value` as JSON in a length a prompt can bear."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
