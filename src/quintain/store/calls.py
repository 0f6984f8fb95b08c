"""Answered calls of episodes that have not ended: each is written before it is answered, so that a kill loses none.

The file ``calls.jsonl`` stands beside the journal while a served model is recorded. A line is a checksum and a row: a
call, what is seen of a call later, or that the journal has its episode. What the journal has is of no more use here, so
the file goes when the recording ends; where it is left, `read_calls` says what was under way.
"""

import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from quintain.errors import StoreError
from quintain.store import faults
from quintain.store.files import disk_error
from quintain.types import Turn
from quintain.types.rows import from_row, plain, to_row

CALLS = "calls.jsonl"
LONGEST_LINE = 256 << 20
"""Bytes of a line; a longer one was not written here."""


@dataclass(slots=True, kw_only=True)
class OpenEpisode:
    """An episode that was under way: ``OpenEpisode(number=3, name="main")``."""

    number: int
    """its place in the order of being opened"""
    name: str
    is_ended: bool = False
    """Whether the journal has it."""
    seconds: float = 0.0
    turns: dict[int, Turn] = field(default_factory=dict[int, Turn])
    """its calls by number"""


class CallLog:
    """Writes `file`, which must not be there; may be used from several threads."""

    def __init__(self, file: Path) -> None:
        """Make the file.

        Raises:
            StoreError: it cannot be made.
        """
        self.file = file
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            self._handle = os.open(file, flags, 0o600)
        except OSError as error:
            raise disk_error("noting calls", file, error) from error

    def call(self, episode: int, name: str, number: int, turn: Turn, seconds: float) -> None:
        """Note a call that is about to be answered.

        Raises:
            StoreError: the disk fails; it must not be answered then.
        """
        self._write(
            {"episode": episode, "name": name, "call": number, "seconds": seconds, "turn": to_row(turn)}
        )

    def facts(self, episode: int, number: int, facts: Mapping[str, Any]) -> None:
        """Note what is seen of a call by now."""
        self._write({"episode": episode, "call": number, "facts": facts})

    def end(self, episode: int, name: str) -> None:
        """Note that the journal has an episode."""
        self._write({"episode": episode, "name": name, "is_ended": True})

    def close(self) -> None:
        """Take the file away: the journal has all episodes. May be called again."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self.file.unlink(missing_ok=True)

    def _write(self, row: Mapping[str, Any]) -> None:
        text = json.dumps(row, default=plain, separators=(",", ":")).encode()
        unsent = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
        with self._lock:
            try:
                faults.point("append", self.file)
                while unsent:
                    unsent = unsent[os.write(self._handle, unsent) :]
            except OSError as error:
                raise disk_error("noting a call", self.file, error) from error


def read_calls(file: Path) -> tuple[list[OpenEpisode], int]:
    """Return the episodes whose calls `file` holds, in the order of being opened, and how many lines cannot be read.

    Raises:
        StoreError: the file cannot be read.
    """
    found: dict[int, OpenEpisode] = {}
    num_broken = 0
    try:
        for line in _lines(file):
            try:
                _take(line, found)
            except (ValueError, KeyError, TypeError, RecursionError):
                num_broken += 1
    except OSError as error:
        raise StoreError(f"reading {file}: got {error.strerror or error}; make it readable") from error
    return [found[number] for number in sorted(found)], num_broken


def _lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of `file`; one that is longer than any that is written here ends it."""
    with open(file, "rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            yield line


def _take(line: bytes, found: dict[int, OpenEpisode]) -> None:
    """Put what `line` says into `found`."""
    text = line[9:].removesuffix(b"\n")
    if line[-1:] != b"\n" or int(line[:8], 16) != zlib.crc32(text):
        raise ValueError("a line that was cut off or changed")
    row = cast("dict[str, Any]", json.loads(text))
    number = row["episode"]
    if type(number) is not int:
        raise TypeError("a row of no episode")
    if row.get("is_ended"):
        ended = found.setdefault(number, OpenEpisode(number=number, name=str(row["name"])))
        ended.is_ended = True
        return
    if "facts" in row:
        turns = found[number].turns
        turns[row["call"]] = replace(turns[row["call"]], facts=dict(row["facts"]))
        return
    turn, seconds = from_row(Turn, row["turn"]), float(row["seconds"])
    if type(row["name"]) is not str or type(row["call"]) is not int:
        raise TypeError("a call of no episode")
    episode = found.setdefault(number, OpenEpisode(number=number, name=row["name"]))
    episode.seconds = seconds
    episode.turns[row["call"]] = turn
