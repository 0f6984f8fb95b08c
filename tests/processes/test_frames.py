"""Frames: what comes is read whole, bounded, by a deadline; nothing that is no frame is believed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from quintain.processes.frames import LARGEST, Frames, UnreadableFrameError, frame_request

LONG = 60.0
Talk = Callable[[str], "Other"]


class Other:
    """A Python program at the other side, and what it may print."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", f"import os, sys, time\n{code}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.exited = os.pidfd_open(self.process.pid)
        self.frames = Frames(self.process)
        self.limit = ""

    def find_passed_limit(self) -> str:
        return self.limit

    def read(self, seconds: float = LONG, most: int = 1000) -> object:
        return self.frames.read(time.monotonic() + seconds, self, most)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate()
        os.close(self.exited)


@pytest.fixture
def talk() -> Iterator[Talk]:
    others: list[Other] = []

    def start(code: str) -> Other:
        others.append(Other(code))
        return others[-1]

    yield start
    for other in others:
        other.end()


def saying(*frames: bytes) -> str:
    """Return a program that writes `frames` and waits."""
    return f"os.write(1, {b''.join(frames)!r})\ntime.sleep(60)"


def test_frames_that_come_together_are_read_one_by_one(talk: Talk) -> None:
    other = talk(saying(frame_request({"a": 1}), frame_request({"b": "é\ud800"}), b"\0\0\0\x09{"))
    assert [other.read(), other.read()] == [{"a": 1}, {"b": "é\ud800"}]
    assert other.read(0.05) == "time"
    assert not other.frames.is_quiet(), "half a frame is there"
    other.frames.forget()
    assert other.frames.is_quiet()


def test_a_request_larger_than_a_pipe_gets_through(talk: Talk) -> None:
    code = "n = 4 + int.from_bytes(os.read(0, 4), 'big')\nwhile n > 4: n -= len(os.read(0, 1 << 16))\n"
    other = talk(code + saying(frame_request({"is_done": True})))
    other.frames.write(frame_request({"text": "x" * 1_000_000}))
    assert other.read() == {"is_done": True}


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ((LARGEST + 1).to_bytes(4, "big"), f"a frame of {LARGEST + 1} bytes"),
        (b"\0\0\0\x02[]", "not an object"),
        (b"\0\0\0\x03{]}", "Expecting property name"),
        (b"\0\0\0\x02\xff\xff", "decode"),
    ],
)
def test_what_is_no_frame_is_named(talk: Talk, said: bytes, complaint: str) -> None:
    with pytest.raises(UnreadableFrameError, match=complaint):
        talk(saying(said)).read()


def test_output_is_kept_apart_and_counted(talk: Talk) -> None:
    other = talk("os.write(2, b'hello')\n" + saying(frame_request({"a": 1})))
    assert other.read() == {"a": 1}
    while not (said := other.frames.output(3)):
        assert other.read(0.05) == "time"
    assert said == "hel"
    assert other.frames.output(3) == ""
    assert talk("while True: os.write(2, b'x' * 99)").read(most=5000) == "output"


def test_the_end_of_the_other_side_and_its_limits_are_told(talk: Talk) -> None:
    assert talk(f"os.write(1, {frame_request({'last': 1})!r})").read() == {"last": 1}
    assert talk("os._exit(3)").read() == "exited"
    assert talk("os.close(1); os.close(2); time.sleep(60)").read() == "exited"
    other = talk("time.sleep(60)")
    other.limit = "memory"
    assert other.read() == "memory"
