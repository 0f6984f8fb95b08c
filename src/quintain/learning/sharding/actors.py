"""Ranks on a Ray cluster: an actor each, on any machines that see one folder.

What they do, and what it costs when one is lost, is as with processes of this machine (`sharding.ranks`): all are
ended, and the run goes on from its last checkpoint, on the machines that are left, when it is resumed.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn

from quintain.distributed.connection import Connection
from quintain.distributed.placement import CPU, GPU, LearnerRanks, bundle
from quintain.distributed.version import check_version, own_version
from quintain.errors import EngineFault, find_error_class
from quintain.learning.sharding.heartbeats import ANSWER, BEAT, Heartbeat, HeartbeatMonitor
from quintain.learning.sharding.host import MARK, Host, Row

PATIENCE = 5.0
"""Seconds after the first fault in which it is looked which rank is gone."""
TRIES = 3
"""Ports that are tried for the ranks to meet at."""
SIGNS = "signs"
"""The threads of an actor that say how far its work has come, beside the one that works."""


class RankActor:
    """A rank as an actor."""

    def __init__(self) -> None:
        self._host = Host()

    def open(self, version: str, folder: str, mark: str) -> str:
        """Return this machine's address, if the driver is of this version and `folder` is the one that it sees.

        Raises:
            EngineFault: another version. UsageError: another folder.
        """
        check_version(version, "a rank of the learner")
        self._host.on_see(folder, mark)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            with suppress(OSError):
                probe.connect(("192.0.2.1", 9))  # nothing is sent: it says by which address others reach us
            return str(probe.getsockname()[0])

    def free_port(self) -> int:
        """Return a port that nobody uses here now."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def answer(self, do: str, arguments: Sequence[Any]) -> Row:
        """See `Host.answer`."""
        return self._host.answer(do, arguments)

    def read_heartbeat(self) -> Heartbeat:
        """See `Host.read_heartbeat`; asked in a thread of its own."""
        return self._host.read_heartbeat()


class RankActors:
    """`count` actors that compute together; see `sharding.ranks.RankGroup`.

    Args:
        connection: to their cluster.
        wants: what each needs.
        folder: one that driver and ranks see under this name; it is made, and deleted at the end.
        start_timeout: seconds that they may take to start.
    """

    def __init__(
        self,
        connection: Connection,
        count: int,
        wants: LearnerRanks,
        folder: Path,
        *,
        start_timeout: float,
    ) -> None:
        """Start them and have them meet.

        Raises:
            EngineFault: one does not start, is of another version, or no port is free.
            UsageError: they do not see the folder.
        """
        self.count, self.folder = count, folder.resolve()
        self._connection, self._ray = connection, connection.ray
        self._is_lost = False
        self._monitor = HeartbeatMonitor(count, is_on_card=wants.gpus > 0)
        self._asked_signs = dict[int, Any]()
        """what each rank has yet to say of itself"""
        folder.mkdir(parents=True, exist_ok=True)
        mark = secrets.token_hex(16)
        (folder / MARK).write_text(mark)
        needs = dict(bundle("", wants).needs)
        kind = self._ray.remote(
            num_cpus=needs.pop(CPU, 0.0), num_gpus=needs.pop(GPU, 0.0), resources=needs, max_restarts=0,
            concurrency_groups={SIGNS: 1},
        )(RankActor)  # fmt: skip
        self._ranks = [kind.remote() for _ in range(count)]
        try:
            opened = [rank.open.remote(own_version(), str(self.folder), mark) for rank in self._ranks]
            addresses = [connection.get(each, start_timeout, "a rank of the learner") for each in opened]
            self._meet(addresses[0], "cuda" if wants.gpus else "cpu", max(1, int(wants.cpus)))
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, *arguments: object, each: Sequence[Sequence[object]] | None = None) -> list[Any]:
        """See `RankGroup.ask`."""
        if self._is_lost:
            raise EngineFault(f"ranks of the learner, asked to {do}: they were ended; resume the run")
        answers = self._answers(do, arguments, each)
        for number, answer in enumerate(answers):
            if "fault" in answer:
                self._lose(do, f"rank {number} of {self.count} said: {answer['fault']}", answer.get("class"))
        return [answer.get("value") for answer in answers]

    def close(self) -> None:
        """End all of them; may be repeated."""
        self._is_lost = True
        for rank in self._ranks:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(rank)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _meet(self, address: str, device: str, threads: int) -> None:
        """Have them meet at a port of the first one's machine; one that is taken meanwhile is replaced."""
        for _ in range(TRIES):
            port = self._ray.get(self._ranks[0].free_port.remote())
            joined = [
                (number, self.count, f"tcp://{address}:{port}", device, threads, ANSWER)
                for number in range(self.count)
            ]
            answers = self._answers("join", (), joined)
            faults = [answer["fault"] for answer in answers if "fault" in answer]
            if not faults:
                return
            if not any("address already in use" in fault.lower() for fault in faults):
                self._lose("join", f"one said: {faults[0]}", EngineFault.__name__)
        raise EngineFault(
            f"ranks of the learner: got ports of {address} that were taken {TRIES} times; free some, then resume"
        )

    def _answers(
        self, do: str, arguments: Sequence[object], each: Sequence[Sequence[object]] | None
    ) -> list[Row]:
        """Return what each rank answers; one that is gone ends them all, since the others wait for it."""
        own = repeat(()) if each is None else each
        asked = {
            rank.answer.remote(do, [*arguments, *more]): number
            for number, (rank, more) in enumerate(zip(self._ranks, own, strict=each is not None))
        }
        waiting, answers, deadline = list(asked), dict[int, Row](), time.monotonic() + ANSWER
        self._monitor.begin(do, time.monotonic())
        while waiting:
            ready, waiting = self._ray.wait(
                waiting, num_returns=1, timeout=max(0.0, min(BEAT, deadline - time.monotonic()))
            )
            if not ready and time.monotonic() > deadline:
                break
            if not ready:
                self._note_signs({asked[each] for each in waiting})
                if found := self._monitor.find_hung(time.monotonic()):
                    who = "a rank" if found[0] is None else f"rank {found[0]}"
                    self._lose(do, f"{who} of {self.count} {found[1]}")
                continue
            number = asked[ready[0]]
            self._monitor.settle(number)
            try:
                answers[number] = self._ray.get(ready[0])
            except self._ray.exceptions.RayError as error:
                self._lose(do, f"rank {number} of {self.count} is gone ({type(error).__name__})")
            if "fault" in answers[number]:  # often because another is gone, which is seen in a moment
                deadline = min(deadline, time.monotonic() + PATIENCE)
        faults = [(number, answer) for number, answer in sorted(answers.items()) if "fault" in answer]
        if waiting and not faults:
            self._lose(do, f"rank {asked[waiting[0]]} of {self.count} took longer than {ANSWER:g} s")
        if waiting:
            number, answer = faults[0]
            self._lose(do, f"rank {number} of {self.count} said: {answer['fault']}", answer.get("class"))
        return [answers[number] for number in range(self.count)]

    def _note_signs(self, ranks: set[int]) -> None:
        """Take in what `ranks` have said of themselves, and ask those who have."""
        for number in ranks:
            reference = self._asked_signs.get(number)
            if reference is not None and not self._ray.wait([reference], num_returns=1, timeout=0)[0]:
                continue
            with suppress(self._ray.exceptions.RayError):  # one that is gone is seen by its answer
                if reference is not None:
                    self._monitor.note(number, self._ray.get(reference), time.monotonic())
            signs = self._ranks[number].read_heartbeat.options(concurrency_group=SIGNS)
            self._asked_signs[number] = signs.remote()

    def _lose(self, do: str, what: str, kind: str | None = None) -> NoReturn:
        """End all ranks and raise the error that says why."""
        self.close()
        raise (find_error_class(kind) or EngineFault)(
            f"ranks of the learner, asked to {do}: {what}; all were ended, and the run can be resumed from its last "
            "checkpoint"
        )
