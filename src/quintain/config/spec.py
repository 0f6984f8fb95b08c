"""One parser of texts with options: ``keydoor?rooms=3&dense=true`` and ``entropy=0.5,window=10``.

What a name is followed by is a query as in a URL (``%26`` stands for ``&``, ``+`` for a blank); a list has commas. Each
option is read as its annotation says, with the words that flags have. An option that is unknown, comes twice or cannot
have its value is one line, before anything is built.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, cast
from urllib.parse import parse_qsl

from quintain.config.fields import Option, is_list, own_options, parts_of
from quintain.config.values import read_text
from quintain.config.wording import show
from quintain.errors import UsageError, suggestion
from quintain.types.json_text import load_json

Pairs = Sequence[tuple[str, str]]
"""(name, text) of each option, in the order in which they stand"""
PYTHON = {"True": True, "False": False, "None": None}


def split_spec(spec: str, whose: str = "") -> tuple[str, Pairs]:
    """Return the name in ``name?a=1&b=2`` and its options; errors call it `whose`, or by itself.

    Raises:
        UsageError: the options cannot be split.
    """
    name, _, query = spec.partition("?")
    return name.strip(), split_query(query, whose or repr(spec))


def split_query(query: str, whose: str) -> Pairs:
    """Return the options in ``a=1&b=2``.

    Raises:
        UsageError: one has no name, or no value.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        pairs = [("", query)]
    if not all(name for name, _ in pairs):
        raise UsageError(f"options of {whose}: got {query!r}; write them as name=value&name=value")
    return pairs


def split_list(text: str, whose: str, example: str, *, sign: str = "=", usual: str = "") -> Pairs:
    """Return the names and texts in ``a=1,b=2``; `sign` stands between the two, and `usual` is a text that is left out.

    Raises:
        UsageError: a part has no name or no text; `example` says how it is written.
    """
    pairs: list[tuple[str, str]] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, found, value = (each.strip() for each in part.rpartition(sign))
        pairs.append((name, value) if found else (value, usual))
        if not all(pairs[-1]):
            raise UsageError(f"{whose}: got {part!r}; write {example}")
    return pairs


def read_numbers(pairs: Pairs, whose: str, example: str) -> dict[str, float]:
    """Return the number, 0 or more, of each name in `pairs`.

    Raises:
        UsageError: a text is no such number, or a name comes twice.
    """
    found: dict[str, float] = {}
    for name, text in refuse_twice(pairs, whose).items():
        try:
            found[name] = float(text)
        except ValueError:
            found[name] = -1.0
        if not 0 <= found[name] < math.inf:
            raise UsageError(f"{name} of {whose}: got {text!r}; give a number of 0 or more, as in {example}")
    return found


def read_options(
    pairs: Pairs, known: Mapping[str, Option], whose: str, *, takes_any: bool = False
) -> dict[str, Any]:
    """Return the values of `pairs`; with `takes_any`, also of options that are not `known`, as JSON or text.

    An option that is a list may come several times.

    Raises:
        UsageError: an option is unknown, comes twice, or has a value that it cannot have.
    """
    values: dict[str, Any] = {}
    for name, text in pairs:
        option = known.get(name)
        if option is None and not takes_any:
            hint = suggestion(name, known) if known else "it has no options"
            raise UsageError(f"option of {whose}: got {name!r}; {hint}")
        value = read_json(text) if option is None else read_option(option, text, whose)
        if option is not None and any(map(is_list, parts_of(option.annotation))):
            values[name] = (*values.get(name, ()), *value)
        elif name in values:
            raise _came_twice(name, whose)
        else:
            values[name] = value
    return values


def refuse_twice(pairs: Pairs, whose: str) -> dict[str, str]:
    """Return `pairs` by name.

    Raises:
        UsageError: a name comes twice.
    """
    found: dict[str, str] = {}
    for name, text in pairs:
        if name in found:
            raise _came_twice(name, whose)
        found[name] = text
    return found


def _came_twice(name: str, whose: str) -> UsageError:
    return UsageError(f"{name} of {whose}: got it twice; give it once")


def read_option(option: Option, text: str, whose: str) -> Any:
    """Return the value of `option` that `text` is; what is written as its default is that."""
    from pydantic.errors import PydanticSchemaGenerationError

    if option.annotation is Any:
        return read_json(text)
    if not option.is_required and option.default is not None and text == show(option.default):
        return option.default
    try:
        return read_text(option, text, f"{option.name} of {whose}")
    except PydanticSchemaGenerationError:  # a type of the user's own
        return read_json(text)
    except UsageError as error:
        raise UsageError(str(error)) from error


def read_json(text: str) -> Any:
    """Return `text` as JSON where it is JSON, or a word of Python's, else as it is."""
    try:
        return load_json(text)
    except ValueError:
        return PYTHON.get(text, text)


def options_from(annotations: Mapping[str, Any]) -> dict[str, Option]:
    """Return an option of each name with its annotation: ``options_from({"nodes": PositiveInt})``."""
    return {
        name: Option(name=name, annotation=annotation, default=MISSING, help="")
        for name, annotation in annotations.items()
    }


def fields_of(config_class: type[Any], without: Sequence[str] = ()) -> dict[str, Option]:
    """Return the options that are the fields of a dataclass, but those `without` which it is filled."""
    return {option.name: option for option in own_options(config_class) if option.name not in without}


def parameters_of(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> dict[str, Option]:
    """Return the options that are the keyword parameters of `function`, or of the constructor of a class.

    `names` are what its annotations name that is not there when it runs.
    """
    hinted = cast("Any", function).__init__ if isinstance(function, type) else function
    hints = typing.get_type_hints(hinted, localns=dict(names or {}), include_extras=True)
    return {
        name: Option(
            name=name,
            annotation=hints.get(name, Any),
            default=MISSING if each.default is each.empty else each.default,
            help="",
        )
        for name, each in inspect.signature(function).parameters.items()
        if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)
    }


def takes_any(function: Callable[..., Any]) -> bool:
    """Whether `function` takes keywords of any name."""
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())
