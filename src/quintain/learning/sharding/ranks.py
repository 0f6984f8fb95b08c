"""The processes that hold the shards of policies: started, asked all at once, and ended together.

A rank that dies takes the others with it, because they wait for it: all are ended, and the error names the one that was
gone first. What was learned since the last checkpoint is then lost, and a run that is resumed goes on from there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn, Protocol

from quintain.engines.process import SOURCES
from quintain.errors import EngineFault, find_error_class
from quintain.learning.sharding import heartbeats
from quintain.learning.sharding.heartbeats import ANSWER, Heartbeat, HeartbeatMonitor
from quintain.processes.child import PATIENCE, Child, ending
from quintain.processes.frames import MAX_OUTPUT, Frames, UnreadableFrameError, frame_request
from quintain.processes.usage import num_cores

PROGRAM = "import sys; sys.path.insert(0, {!r}); from quintain.learning.sharding.host import main; main()"
SLICE = 1.0
"""Seconds of one wait for a rank, after which it is seen whether another hangs."""
TICK = 0.001
"""Seconds between two looks at whether a rank takes what is sent to it."""


@dataclass(frozen=True, slots=True)
class _Rank:
    child: Child
    frames: Frames


class RankGroup(Protocol):
    """Ranks that compute together, wherever they are."""

    @property
    def count(self) -> int:
        """How many they are."""
        ...

    @property
    def folder(self) -> Path:
        """Where weights go to and fro, which all of them see."""
        ...

    def ask(self, do: str, *arguments: object, each: Sequence[Sequence[object]] | None = None) -> list[Any]:
        """Have every rank `do` something with `arguments` and its own of `each`; return their answers in order.

        Raises:
            EngineFault: a rank is lost, or was before.
            QuintainError: what a rank raised.
        """
        ...

    def close(self) -> None:
        """End all of them; may be repeated."""
        ...


class Ranks:
    """`count` processes that compute together on this machine: ``Ranks(2).ask("clip", "policy")``.

    Args:
        count: how many.
        device: cpu, or cuda for a card each.
    """

    def __init__(self, count: int, *, device: str = "cpu") -> None:
        """Start them and have them meet.

        Raises:
            EngineFault: one does not start.
        """
        self.count = count
        self.folder = Path(tempfile.mkdtemp(prefix="quintain-ranks-"))
        """where weights go to and fro"""
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._ranks: list[_Rank] = []
        self._last_number = 0
        self._monitor = HeartbeatMonitor(count, is_on_card=device != "cpu")
        self._answers: dict[int, dict[str, Any]] = {}
        self._is_lost = False
        command = [sys.executable, "-P", "-X", "utf8", "-c", PROGRAM.format(str(SOURCES))]
        try:
            for _ in range(count):
                child = Child(command)
                weakref.finalize(self, child.end)
                self._ranks.append(_Rank(child, Frames(child.process)))
        except OSError as error:
            self.close()
            raise EngineFault(
                f"ranks of the learner: got {error} from the system; free memory or processes"
            ) from error
        threads = max(1, num_cores() // count)
        place = f"file://{self.folder / 'meeting'}"
        self.ask("join", each=[(number, count, place, device, threads, ANSWER) for number in range(count)])

    @property
    def process_ids(self) -> list[int]:
        """The numbers of the processes that were started, which keep those that work."""
        return [rank.child.process.pid for rank in self._ranks]

    def ask(self, do: str, *arguments: object, each: Sequence[Sequence[object]] | None = None) -> list[Any]:
        """See `RankGroup.ask`."""
        if self._is_lost:
            raise EngineFault(f"ranks of the learner, asked to {do}: they were ended; resume the run")
        self._last_number += 1
        own = repeat(()) if each is None else each
        for rank, more in zip(self._ranks, own, strict=each is not None):
            rank.frames.write(frame_request({"id": self._last_number, "do": do, "with": [*arguments, *more]}))
        deadline = time.monotonic() + ANSWER
        self._flush(do)
        self._monitor.begin(do, time.monotonic())
        self._answers = dict[int, dict[str, Any]]()
        answers = [self._answer(number, do, deadline) for number in range(self.count)]
        for answer in answers:
            if "fault" in answer:
                self._lose(do, f"said: {answer['fault']}", kind=answer.get("class"))
        return [answer.get("value") for answer in answers]

    def close(self) -> None:
        """End all of them."""
        self._is_lost = True
        for rank in self._ranks:
            rank.child.end()

    def _flush(self, do: str) -> None:
        """Send everybody everything: one that waits for another must not keep us from telling the other."""
        deadline = time.monotonic() + heartbeats.SILENCE
        waiting = dict(enumerate(self._ranks))
        while waiting := {number: rank for number, rank in waiting.items() if not rank.frames.flush()}:
            if any(rank.child.wait(0) is not None for rank in waiting.values()):
                return
            if time.monotonic() > deadline:
                self._lose(do, f"took in nothing for {heartbeats.SILENCE:.0f} s and hangs", min(waiting))
            time.sleep(TICK)

    def _answer(self, number: int, do: str, deadline: float) -> dict[str, Any]:
        """Return the answer of one rank; while it is waited for, it is seen whether any hangs."""
        while number not in self._answers:
            self._read(number, do, min(time.monotonic() + SLICE, deadline))
            if number in self._answers:
                break
            if time.monotonic() > deadline:
                self._lose(do, f"took longer than {ANSWER:g} s", number)
            for other in range(self.count):
                if other != number and other not in self._answers:
                    self._read(other, do, time.monotonic() + TICK)
            if (found := self._monitor.find_hung(time.monotonic())) is not None:
                self._lose(do, found[1], found[0])
        return self._answers[number]

    def _read(self, number: int, do: str, deadline: float) -> None:
        """Take in what a rank says by `deadline`: its answer, or that it is at work."""
        rank = self._ranks[number]
        try:
            frame = rank.frames.read(deadline, rank.child, MAX_OUTPUT)
        except UnreadableFrameError as error:
            self._lose(do, f"said what is no answer ({error})", number)
        if isinstance(frame, dict):
            if "beat" in frame:
                self._monitor.note(number, Heartbeat(**frame["beat"]), time.monotonic())
            else:
                rank.frames.output(MAX_OUTPUT)
                self._answers[number] = frame
                self._monitor.settle(number)
        elif frame != "time":
            self._lose(do, "printed too much" if frame == "output" else "", number)

    def _lose(self, do: str, what: str, number: int | None = None, *, kind: str | None = None) -> NoReturn:
        """End all ranks and raise the error that names the one that is the cause."""
        gone = {
            place: code
            for place, rank in enumerate(self._ranks)
            if (code := rank.child.wait(PATIENCE)) is not None
        }
        last = ""
        if gone:
            number, code = next(iter(gone.items()))
            what, kind = f"ended with {ending(code)}", None
            last = self._ranks[number].frames.last_words(MAX_OUTPUT)
        self.close()
        who = "a rank" if number is None else f"rank {number}"
        raise (find_error_class(kind) or EngineFault)(
            f"ranks of the learner, asked to {do}: {who} of {self.count} {what or 'closed its connection'}{last}; "
            "all were ended, and the run can be resumed from its last checkpoint"
        )
