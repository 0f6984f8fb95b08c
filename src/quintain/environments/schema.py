"""Checks arguments against a JSON schema that came from elsewhere, in words that a model can act on.

The package `jsonschema` checks, this module words what it found. Nothing is fetched (a reference that leads out of the
schema forbids nothing) and `format` is not looked at; what is unknown, broken or takes too much work forbids nothing
either, for the server has the last word.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import UnknownType
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable

from quintain.errors import suggestion

LONGEST = 60
MAX_CHECKS = 10_000
"""Keywords that are looked at in one call; a schema may refer to itself more than once."""
MAX_FAULTS = 32
"""Faults among which the most telling are chosen."""
ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
BROKEN = (*ERRORS, UnknownType, Unresolvable)
"""What is raised where a schema is used that is none."""
WORDS: Mapping[str, str] = {
    "required": "missing",
    "additionalProperties": "unknown argument; {message}",
    "type": "expected {names}, got {value}",
    "not": "expected something that does not fit {rule}, got {value}",
    "const": "expected {rule}, got {value}",
    "enum": "expected one of {rule}, got {value}",
    "anyOf": "expected one of {count} forms, got {value}",
    "oneOf": "expected one of {count} forms, got {value}",
    "minimum": "expected at least {rule}, got {value}",
    "maximum": "expected at most {rule}, got {value}",
    "exclusiveMinimum": "expected more than {rule}, got {value}",
    "exclusiveMaximum": "expected less than {rule}, got {value}",
    "minLength": "expected at least {rule} characters, got {size}",
    "maxLength": "expected at most {rule} characters, got {size}",
    "minItems": "expected at least {rule} items, got {size}",
    "maxItems": "expected at most {rule} items, got {size}",
    "pattern": "expected a text like {names}, got {value}",
}
"""What is said of a fault, by keyword, the most telling first; another keyword is named with what it asks for."""
Found = Iterator[ValidationError]
_left: ContextVar[Iterator[int]] = ContextVar("_left")


def complaint(tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return what is wrong with `arguments` of `tool`, at most three things; an empty text when nothing is.

    Example: ``complaint("add", {"type": "object", "required": ["a"]}, {})`` is ``"add(a): missing"``.
    """
    found: list[tuple[str, str, str]] = []
    _left.set(iter(range(MAX_CHECKS)))
    with suppress(*BROKEN):
        errors = _Validator(dict(schema), registry=Registry()).iter_errors(dict(arguments))
        for error in islice(errors, MAX_FAULTS):
            place = _cut(".".join(map(str, error.absolute_path)))
            found.append((str(error.validator), place, _describe_error(error)))
    ill_typed = {place for keyword, place, _ in found if keyword == "type"}
    told = [each for each in found if each[0] == "type" or each[1] not in ill_typed]
    told.sort(key=lambda each: [*WORDS, each[0]].index(each[0]))
    return "; ".join(
        f"{tool}({place}): {what}" if place else f"{tool}: {what}" for _, place, what in told[:3]
    )


def _describe_error(error: ValidationError) -> str:
    """Return what is wrong, without its place."""
    keyword, rule, value = str(error.validator), cast(Any, error.validator_value), cast(Any, error.instance)
    names = rule if isinstance(rule, str) else " or ".join(map(str, rule)) if isinstance(rule, list) else ""
    if isinstance(value, float) and not math.isfinite(value):
        names = "a finite number"
    if keyword == "not" and rule == {}:
        return "nothing is allowed here"
    return WORDS.get(keyword, f"expected {keyword} {{rule}}, got {{value}}").format(
        rule=_cut(json.dumps(rule, default=repr)),
        value=_cut(json.dumps(value, default=repr)),
        names=_cut(names),
        message=error.message,
        count=len(rule) if isinstance(rule, list) else 0,
        size=len(value) if isinstance(value, (str, list)) else 0,
    )


def _cut(text: str) -> str:
    """Return `text` in a length that a prompt can bear."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _fits(pattern: str, text: str) -> bool:
    """Whether `pattern` is found in `text`, by an engine whose work grows in line with the text and is bounded."""
    try:
        return _searcher(pattern).isinstance_python(text)
    except SchemaError:  # unreadable there, or too large
        return True


@lru_cache
def _searcher(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern))


# What is checked here: for the place that is told, or for patterns, which jsonschema hands to Python's `re`.
def _pattern(_validator: Any, pattern: Any, value: Any, _schema: Any) -> Found:
    if not _fits(pattern, value):
        yield ValidationError("")


def _check_required(_validator: Any, names: Any, value: Any, _schema: Any) -> Found:
    yield from (ValidationError("", path=(name,)) for name in names if name not in value)


def _properties(validator: Any, parts: Any, value: Any, _schema: Any) -> Found:
    for name in (each for each in parts if each in value):
        part = {"not": {}} if parts[name] is False else parts[name]  # a place is not told of False
        yield from validator.descend(value[name], part, path=name)


def _patterns(validator: Any, parts: Any, value: Any, _schema: Any) -> Found:
    for pattern, part in parts.items():
        for name in (each for each in value if _fits(pattern, each)):
            yield from validator.descend(value[name], part, path=name)


def _check_others(validator: Any, part: Any, value: Any, schema: Any) -> Found:
    known, patterns = schema.get("properties") or {}, schema.get("patternProperties") or {}
    for name in (each for each in value if each not in known):
        if any(_fits(pattern, name) for pattern in patterns):
            continue
        if part is False:
            near = suggestion(name, known) if known else "it takes no arguments"
            yield ValidationError(near, path=(name,))
        else:
            yield from validator.descend(value[name], part, path=name)


def _lenient(name: str, check: Callable[..., Found | None]) -> Callable[..., Found]:
    """Return `check` of the keyword `name` as one that counts, and forbids nothing where it is broken."""
    kind = str if name == "pattern" else dict if name in _OF_OBJECTS else object

    def lenient(validator: Any, rule: Any, value: Any, schema: Any) -> Found:
        is_old = rule is True and name.startswith("exclusive")  # as drafts before the sixth had it
        with suppress(*BROKEN):
            if isinstance(value, kind) and not is_old and next(_left.get(), None) is not None:
                yield from check(validator, rule, value, schema) or ()

    return lenient


_OF_OBJECTS = {
    "additionalProperties": _check_others,
    "patternProperties": _patterns,
    "properties": _properties,
    "required": _check_required,
}
_DEFINED = cast("Mapping[str, Callable[..., Found | None]]", Draft202012Validator.VALIDATORS)
_KEYWORDS: Mapping[str, Callable[..., Found | None]] = {
    **_DEFINED,
    **_OF_OBJECTS,
    "oneOf": _DEFINED["anyOf"],  # one that fits several forms is left to the server
    "pattern": _pattern,
    "unevaluatedProperties": lambda *_: None,  # it looks for patterns, too
}
_PLAIN = Draft202012Validator.TYPE_CHECKER
_FINITE = _PLAIN.redefine(
    "number", lambda _, value: _PLAIN.is_type(value, "number") and math.isfinite(cast(float, value))
)
_Validator: Any = extend(
    Draft202012Validator,
    {name: _lenient(name, check) for name, check in _KEYWORDS.items()},
    type_checker=_FINITE,
)
