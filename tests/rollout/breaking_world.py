"""A world that hangs, crashes or babbles, in twelve shapes; it is run in a worker, which finds it by this file."""

import ctypes
import fcntl
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

from quintain.environments.protocol import Environment
from quintain.environments.tools import tool
from quintain.environments.wire import result_row
from quintain.processes.frames import frame_request
from quintain.types import Action, StepResult, Task

Where = Literal["reset", "step", "tool"]
FOREVER = 600.0


class Breaking(Environment):
    """Go."""

    max_turns = 3

    def __init__(self, *, shape: str = "none", where: Where = "step", seconds: float = 3.0) -> None:
        """Break in `shape` at `where`; what is late is late by `seconds`."""
        self.shape, self.where, self.seconds = shape, where, seconds

    def reset(self, task: Task) -> str:
        self.turn = 0
        return self._at("reset", "A wall.")

    def step(self, action: Action) -> StepResult:
        if self.where == "tool":
            return super().step(action)
        self.turn += 1
        seen = self._at("step", "A wall.")
        return StepResult(
            observation=seen, reward=1.0 if self.turn == 2 else 0.0, is_terminated=self.turn == 2
        )

    @tool
    def push(self) -> str:
        """Push the wall."""
        self.turn += 1
        seen = self._at("tool", "It is moved.")
        return self.finish(seen, reward=1.0) if self.turn == 2 else seen

    def _at(self, where: Where, otherwise: str) -> str:
        """Break if this is the place."""
        if where == self.where and self.shape != "none":
            SHAPES[self.shape](self)
        return otherwise


def ignores_sigterm(_: Breaking) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOREVER)


def holds_the_pipe(_: Breaking) -> None:
    if os.fork() == 0:
        os.setsid()
        time.sleep(FOREVER)
    os._exit(7)


def stops_itself(_: Breaking) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(FOREVER)


def exits(_: Breaking) -> None:
    sys.exit(3)


def segfaults(_: Breaking) -> None:
    ctypes.string_at(0)


def forks(_: Breaking) -> None:
    for _number in range(2):
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                time.sleep(FOREVER)
            return  # it goes on as if it were the environment


def floods(_: Breaking) -> None:
    while True:
        print("x" * 10_000)


def says_half(_: Breaking) -> None:
    os.write(replies(), frame_request({"id": 1, "value": "x" * 100})[:50])
    time.sleep(FOREVER)


def says_garbage(_: Breaking) -> None:
    os.write(replies(), b"Segmentation fault (core dumped)")
    time.sleep(FOREVER)


def is_late(world: Breaking) -> None:
    time.sleep(world.seconds)


def answers_twice(_: Breaking) -> None:
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while "request" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    request: Any = frame.f_locals["request"]
    number, value = request["id"], dict[str, Any](observation="A door.", instructions="", tools=[])
    if request["do"] == "step":
        value = result_row(StepResult(observation="A door."))
    os.write(replies(), frame_request({"id": number, "value": value}))


def resets_the_connection(_: Breaking) -> None:
    os.close(replies())
    time.sleep(FOREVER)


SHAPES: dict[str, Callable[[Breaking], None]] = {
    "ignores_sigterm": ignores_sigterm,
    "holds_the_pipe": holds_the_pipe,
    "stops_itself": stops_itself,
    "exits": exits,
    "segfaults": segfaults,
    "forks": forks,
    "floods": floods,
    "says_half": says_half,
    "says_garbage": says_garbage,
    "is_late": is_late,
    "answers_twice": answers_twice,
    "resets_the_connection": resets_the_connection,
}


def replies() -> int:
    """Return the file descriptor of the pipe that the answers go through."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2:
            is_pipe = (
                stat.S_ISFIFO(os.fstat(number).st_mode) if os.path.exists(f"/proc/self/fd/{name}") else False
            )
            if is_pipe and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                return number
    raise AssertionError("there is one")
