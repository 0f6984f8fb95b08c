"""What an option takes, and what came instead, in words."""

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from quintain.config.fields import Option, is_list, parts_of
from quintain.errors import suggestion

WORDS: dict[object, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    types.NoneType: "none",
}
ENDLESS = ("nan", "inf", "infinity")
"""How a number that is none, or has no end, is written."""
FORMS = {"ge": "of {} or more", "gt": "above {}", "le": "up to {}", "lt": "below {}"}
"""limit of a number → how it is said"""


def words(annotation: Any) -> str:
    """Return what `annotation` admits, in words: ``words(PositiveInt | None)`` is "an integer of 1 or more or none"."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return limits_in_words(words(members[0]), members[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(map(words, members))
    if annotation in WORDS:
        return WORDS[annotation]
    if origin is Literal:
        return " or ".join(map(repr, members))
    if is_list(annotation):
        return f"a list, each {words(members[0])}" if members else "a list"
    kind = origin or annotation
    is_table = isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Mapping))
    return "a table" if is_table else str(getattr(annotation, "__name__", annotation))


def limits_in_words(noun: str, notes: tuple[Any, ...]) -> str:
    """Return `noun` with the limits in `notes`, as "a share from 0 to 1"."""
    limits = {
        key: value for note in notes for key in FORMS if (value := getattr(note, key, None)) is not None
    }
    match limits:
        case {"ge": 0, "le": 1} if noun == "a number":
            return "a share from 0 to 1"
        case {"gt": 0, "le": 1} if noun == "a number":
            return "a share above 0, up to 1"
        case {"ge": least, "le": most}:
            return f"{noun} from {least} to {most}"
        case _:
            return f"{noun} {', '.join(FORMS[key].format(limit) for key, limit in limits.items())}".strip()


def wrong_value(option: Option, value: object, label: str, came: str) -> str:
    """Return the line about a `value` of `option` that does not fit; `came` is how it was written."""
    parts = parts_of(option.annotation)
    choices = [str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    if isinstance(value, str) and all(get_origin(part) is Literal for part in parts):
        return f"{label}: got {came}; {suggestion(value, choices)}"
    is_table = isinstance(option.default, Mapping) or is_dataclass(option.default)
    example = "" if option.is_required or is_table else show(option.default)
    has_example = example not in ("", "none", "true", "false")
    wanted = words(option.annotation)
    if (isinstance(value, float) and not isfinite(value)) or came.lower().strip("'+-") in ENDLESS:
        wanted = wanted.replace("a number", "a finite number")
    return f"{label}: got {came}; give {wanted}{f' such as {example}' if has_example else ''}"


def kind_of(value: object) -> str:
    """Return the type of `value` in words."""
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a table" if isinstance(value, Mapping) else WORDS.get(type(value), type(value).__name__)


def show(value: object) -> str:
    """Return `value` as it is written on the command line."""
    if isinstance(value, (list, tuple)):
        return ",".join(show(item) for item in cast("tuple[object]", value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
