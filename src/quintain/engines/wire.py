"""Requests, replies and statistics as rows of JSON, for engines in other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from quintain.engines.protocol import EngineStats, Reply, Request
from quintain.engines.settings import EngineSettings
from quintain.errors import EngineFault

Row = dict[str, Any]
T = TypeVar("T")
_REQUEST = TypeAdapter(Request)
_REPLY = TypeAdapter(Reply)
_STATS = TypeAdapter(EngineStats)
_SETTINGS = TypeAdapter(EngineSettings)


def request_row(request: Request) -> Row:
    """Return `request` as a row."""
    return _REQUEST.dump_python(request, mode="json")


def read_request(row: Mapping[str, Any]) -> Request:
    """Return the request of `row`.

    Raises:
        EngineFault: it is none.
    """
    return _read(_REQUEST, row, "a request")


def reply_row(reply: Reply) -> Row:
    """Return `reply` as a row."""
    return _REPLY.dump_python(reply, mode="json")


def read_reply(row: Mapping[str, Any]) -> Reply:
    """Return the reply of `row`.

    Raises:
        EngineFault: it is none.
    """
    return _read(_REPLY, row, "a reply")


def stats_row(stats: EngineStats) -> Row:
    """Return `stats` as a row."""
    return _STATS.dump_python(stats, mode="json")


def read_stats(row: Mapping[str, Any]) -> EngineStats:
    """Return the statistics of `row`.

    Raises:
        EngineFault: they are none.
    """
    return _read(_STATS, row, "statistics")


def settings_row(settings: EngineSettings) -> Row:
    """Return `settings` as a row."""
    return _SETTINGS.dump_python(settings, mode="json")


def read_settings(row: Mapping[str, Any]) -> EngineSettings:
    """Return the settings of `row`.

    Raises:
        EngineFault: they are none.
    """
    return _read(_SETTINGS, row, "settings")


def _read(adapter: TypeAdapter[T], row: Mapping[str, Any], what: str) -> T:
    """Return what `row` stands for."""
    try:
        return adapter.validate_python(row)
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(map(str, found["loc"]))
        raise EngineFault(
            f"{what} between processes: got {place or 'a row'} that does not fit ({found['msg']}); "
            "use one version of quintain on both sides"
        ) from error
