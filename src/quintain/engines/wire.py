"""Requests, replies and statistics as rows of JSON, for engines in other processes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from quintain.engines.protocol import EngineStats, Reply, Request
from quintain.engines.settings import EngineSettings
from quintain.errors import EngineFault

Row = dict[str, Any]
T = TypeVar("T")
WORDS: dict[type[Any], str] = {
    Request: "a request",
    Reply: "a reply",
    EngineStats: "statistics",
    EngineSettings: "settings",
}
"""What goes between processes, and how an error calls it."""


@cache
def adapter(kind: type[T]) -> TypeAdapter[T]:
    """Return what writes and reads `kind`."""
    return TypeAdapter(kind)


def to_row(value: Request | Reply | EngineStats | EngineSettings) -> Row:
    """Return `value` as a row."""
    return adapter(type(value)).dump_python(value, mode="json")


def from_row(kind: type[T], row: Mapping[str, Any]) -> T:
    """Return the request, reply, statistics or settings of `row`, as `kind` says.

    Raises:
        EngineFault: it is none.
    """
    try:
        return adapter(kind).validate_python(row)
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(map(str, found["loc"]))
        raise EngineFault(
            f"{WORDS[kind]} between processes: got {place or 'a row'} that does not fit ({found['msg']}); "
            "use one version of quintain on both sides"
        ) from error
