"""What a knob takes and what came instead, in words.

The one rule: a wrong value is one line that names the key, what came and what was expected.
"""

import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from quintain.config.knobs import Knob, choices_of, is_list, parts_of
from quintain.errors import suggestion

WORDS: dict[object, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    types.NoneType: "none",
}


def words(annotation: Any) -> str:
    """Return what `annotation` admits, in words: ``words(int | None)`` is ``"an integer or none"``."""
    return " or ".join(part_words(part) for part in parts_of(annotation))


def part_words(part: Any) -> str:
    """Return what one member of a union admits, in words."""
    if part in WORDS:
        return WORDS[part]
    origin = get_origin(part)
    if origin is Literal:
        return " or ".join(repr(value) for value in get_args(part))
    members = [member for member in get_args(part) if member is not ...]
    if is_list(part):
        return f"a list, each {words(members[0])}" if members else "a list"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table"
    return str(getattr(part, "__name__", part))


def wrong_value(knob: Knob, value: object, label: str, complaint: str) -> str:
    """Return the line about a `value` that does not fit; `complaint` is what the type checker said."""
    is_flag = label.startswith("--")
    came = f"{value!r}" if is_flag else f"{json.dumps(value, default=repr)} ({kind_of(value)})"
    if "than" in complaint or "multiple of" in complaint:
        return (
            f"{label} must be {complaint.removeprefix('Input should be ')}: got {came}; give {expected(knob)}"
        )
    choices = [choice for choice in choices_of(knob.annotation) if isinstance(choice, str)]
    hint = suggestion(value, choices) if isinstance(value, str) and choices else f"give {expected(knob)}"
    return f"{label} must be {words(knob.annotation)}: got {came}; {hint}"


def kind_of(value: object) -> str:
    """Return the type of `value` in words."""
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a table" if isinstance(value, Mapping) else WORDS.get(type(value), type(value).__name__)


def expected(knob: Knob) -> str:
    """Return what `knob` takes, with its default as the example where there is one."""
    example = shown(knob.default)
    needs_example = not knob.is_required and example not in ("", "none", "true", "false")
    return f"{words(knob.annotation)} such as {example}" if needs_example else words(knob.annotation)


def shown(value: object) -> str:
    """Return `value` as it is written on the command line."""
    if isinstance(value, (list, tuple)):
        return ",".join(shown(item) for item in cast("tuple[object]", value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
