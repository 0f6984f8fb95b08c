"""The inner side of a process that we started: its standard streams become the way to talk to whoever started it."""

import io
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, cast

from quintain.processes.frames import frame_request
from quintain.processes.keeper import fork_keeper


def take_streams() -> tuple[int, int]:
    """Have this process kept, and return descriptors of what were its standard input and output.

    What it reads from then on is empty, and what it prints goes to the error stream.
    """
    fork_keeper()
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # what it said before a kill is read
    return streams


def send(stream: int, frame: Mapping[str, Any]) -> None:
    """Write `frame` to the descriptor `stream`."""
    unsent = memoryview(frame_request(frame))
    while unsent:
        unsent = unsent[os.write(stream, unsent) :]


def receive(stream: int) -> dict[str, Any] | None:
    """Read a frame from the descriptor `stream`; None when there are no more."""
    head = _read(stream, 4)
    body = None if head is None else _read(stream, int.from_bytes(head, "big"))
    return None if body is None else cast("dict[str, Any]", json.loads(body))


def _read(stream: int, length: int) -> bytes | None:
    """Read so many bytes; None when the other side is gone."""
    found = bytearray()
    while len(found) < length:
        chunk = os.read(stream, length - len(found))
        if not chunk:
            return None
        found += chunk
    return bytes(found)
