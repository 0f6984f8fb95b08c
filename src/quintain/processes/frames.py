"""Frames of JSON between two processes, and the plain output beside them.

A frame is four bytes of length and JSON. Nothing that comes from the other side is believed: frames have a largest
size, JSON is plain data, output is counted, and every wait has a deadline.
"""

import json
import os
import selectors
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Literal, Protocol, TypeVar, cast

R_co = TypeVar("R_co", bound=str, covariant=True)
R = TypeVar("R", bound=str)
MAX_OUTPUT = 4 << 20
"""Bytes of plain output that a process may write between two frames, where nobody says otherwise."""
LONGEST_TAIL = 300
"""Characters of the output that an error quotes."""
LARGEST = 8 << 20
"""Bytes of a frame from the other side."""
CHUNK = 1 << 16
TICK = 0.03
"""Seconds between two looks at what the other side uses."""
Ending = Literal["time", "output", "exited"]
"""Why there is no frame: the deadline passed, there was too much output, or the other side is gone."""


class UnreadableFrameError(Exception):
    """What the other side said is no frame."""


class Watched(Protocol[R_co]):
    """The process at the other side, as far as reading must know it."""

    @property
    def exited(self) -> int:
        """A file descriptor that can be read from when it has ended."""
        ...

    def find_passed_limit(self) -> R_co:
        """Return the limit that it has passed; an empty text while there is none."""
        ...


class Piped(Protocol):
    """A process with pipes to its standard streams."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """What it reads."""
        ...

    @property
    def stdout(self) -> IO[bytes] | None:
        """What it writes."""
        ...

    @property
    def stderr(self) -> IO[bytes] | None:
        """What it writes beside that."""
        ...


class Frames:
    """The pipes of a process: frames on its standard input and output, plain output on its error stream."""

    def __init__(self, process: Piped) -> None:
        """Take the pipes of `process`, which must have all three."""
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._requests, self._replies = process.stdin.fileno(), process.stdout.fileno()
        self._text = process.stderr.fileno()
        for stream in (self._requests, self._replies, self._text):
            os.set_blocking(stream, False)
        self._unread, self._unsent, self._said = bytearray(), bytearray(), bytearray()

    def write(self, frame: bytes) -> None:
        """Take `frame` on; it is sent while reading."""
        self._unsent += frame

    def flush(self) -> bool:
        """Send what the other side takes now, and return whether that was all."""
        self._send()
        return not self._unsent

    def read(self, deadline: float, watched: Watched[R], most: int) -> dict[str, Any] | Ending | R:
        """Return the next frame, or why there was none by `deadline` (of `time.monotonic`).

        More than `most` bytes of plain output since the last call of `output` are too many.

        Raises:
            UnreadableFrameError: what came is no frame.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            selector.register(self._text, selectors.EVENT_READ)
            selector.register(watched.exited, selectors.EVENT_READ)
            while True:
                frame = self._frame()
                if frame is not None:
                    read_into(self._said, self._text, most)
                    return "output" if len(self._said) > most else frame
                self._send()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return "time"
                tick = 0.002 if self._unsent else min(TICK, remaining)
                ready = {key.fd for key, _ in selector.select(tick)}
                is_open = read_into(self._unread, self._replies, LARGEST + 4)
                if not read_into(self._said, self._text, most) and self._text in selector.get_map():
                    selector.unregister(self._text)
                if len(self._said) > most:
                    return "output"
                if watched.exited in ready or not is_open:
                    return self._frame() or "exited"
                reason = watched.find_passed_limit()
                if reason:
                    return reason

    def output(self, most: int) -> str:
        """Return what was written since the last call, at most so many bytes of it."""
        said = bytes(self._said[:most])
        self._said.clear()
        return said.decode(errors="replace")

    def last_words(self, most: int) -> str:
        """Return how an error goes on with the end of what `output` returns, if that is anything."""
        said = " ".join(self.output(most).split())[-LONGEST_TAIL:]
        return f"; it said last: {said}" if said else ""

    def is_quiet(self) -> bool:
        """Whether nothing has come that was not read."""
        read_into(self._unread, self._replies, LARGEST)
        return not self._unread

    def forget(self) -> None:
        """Drop what the other side has said beyond its answer; it must stand still."""
        read_into(self._unread, self._replies, LARGEST)
        self._unread.clear()

    def _frame(self) -> dict[str, Any] | None:
        """Return the next frame if it has arrived."""
        if len(self._unread) < 4:
            return None
        length = int.from_bytes(self._unread[:4], "big")
        if length > LARGEST:
            raise UnreadableFrameError(f"a frame of {length} bytes")
        if len(self._unread) < 4 + length:
            return None
        body = bytes(self._unread[4 : 4 + length])
        del self._unread[: 4 + length]
        try:
            frame = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise UnreadableFrameError(str(error)) from error
        if not isinstance(frame, dict):
            raise UnreadableFrameError("not an object")
        return cast("dict[str, Any]", frame)

    def _send(self) -> None:
        """Send as much as the other side takes."""
        with suppress(BlockingIOError, BrokenPipeError):
            while self._unsent:
                del self._unsent[: os.write(self._requests, self._unsent[:CHUNK])]


def read_into(content: bytearray, stream: int, most: int) -> bool:
    """Append what `stream` holds to `content`, up to a little more than `most`; False at the end of it."""
    with suppress(BlockingIOError):
        while len(content) <= most:
            chunk = os.read(stream, CHUNK)
            if not chunk:
                return False
            content += chunk
    return True


def frame_request(request: Mapping[str, Any]) -> bytes:
    """Return `request` as a frame."""
    body = json.dumps(request).encode()
    return len(body).to_bytes(4, "big") + body
