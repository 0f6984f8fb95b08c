"""Ranks that torchrun has started, on one machine or several; the first of them is the driver, too.

``torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m -- quintain.cli train …``,
on two machines, starts four processes with one command. They meet where torchrun says, compare what they run, and then
the first trains as if it were alone, while the others hold their shards and do what it asks.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous

from quintain.distributed.version import own_version
from quintain.errors import EngineFault, QuintainError, UsageError, find_error_class
from quintain.learning.sharding.heartbeats import ANSWER, BEAT, WAIT, Heartbeat, HeartbeatMonitor
from quintain.learning.sharding.host import MARK, Host, Row
from quintain.models.device import find_device
from quintain.types.terminal import write_line

MEETING = 600.0
"""Seconds that processes may take to come, from the first to the last."""
FOREVER = timedelta(days=365)
"""For how long one that follows waits for what it is asked."""
END = "end"
"""What the others are asked to do last."""
PATIENCE = 5.0
"""Seconds that the store may take for its last answer."""


class Launched:
    """This process among `count` that torchrun has started: number `rank`, which knows the others by `store`."""

    def __init__(self, rank: int, count: int, store: Store) -> None:
        self.rank, self.count = rank, count
        self.folder = Path()
        """where weights go to and fro; see `open`"""
        self._store = PrefixStore("quintain", store)
        self._host = Host()
        self._line: Any = None
        """what frames go over"""
        self._is_lost = False
        self._monitor = HeartbeatMonitor(count)
        self._hosts: list[str] = []
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._beats = dict[int, list[Any]]()
        """what each rank last told of itself"""
        self._do = WAIT
        """what the ranks were last asked to do"""

    def meet(self, config: Mapping[str, Any], device: str, *, seconds: float = MEETING) -> None:
        """Meet the others, if all have one version and `config`; each computes on `device`.

        Raises:
            UsageError: they have not. EngineFault: one does not come.
        """
        if self._is_lost:
            raise UsageError(
                "torchrun: got a second training in one process; start each by a torchrun of its own"
            )
        own = {"quintain": own_version(), "torch": torch.__version__, **config}
        try:
            self._store.set(
                f"rank/{self.rank}", json.dumps({"host": socket.gethostname(), "runs": own}, default=str)
            )
            if not self.rank:
                rows = [self._read(f"rank/{number}", seconds) for number in range(self.count)]
                hosts = [row["host"] for row in rows]
                self._store.set("verdict", json.dumps([_difference(rows), hosts]))
            wrong, self._hosts = self._read("verdict", 2 * seconds)
        except dist.DistError as error:
            raise EngineFault(
                f"torchrun: rank {self.rank} of {self.count} got {_first_line(error)} while it waited {seconds:g} s "
                "for the others; start them on all machines"
            ) from error
        if wrong and self.rank:
            raise SystemExit(UsageError.exit_code)  # the first process says why
        if wrong:
            raise UsageError(wrong)
        kind = find_device(device).type
        self._monitor = HeartbeatMonitor(self.count, is_on_card=kind != "cpu")
        self._do = "join"
        self._monitor.begin(self._do, time.monotonic())
        for target in (self._exchange_beats, self._end_where_one_hangs):  # the store may hang, too
            self._threads.append(threading.Thread(target=target, name="signs of life", daemon=True))
            self._threads[-1].start()
        answer = self._host.answer(
            "join", [self.rank, self.count, self._store, kind, torch.get_num_threads(), ANSWER]
        )
        if "fault" in answer:
            self._end_beats()
            raise EngineFault(
                f"torchrun: rank {self.rank} of {self.count} got {answer['fault']}; free ports, or network"
            )
        self._line = dist.new_group(backend="gloo", timeout=FOREVER)
        self._monitor.begin(WAIT, time.monotonic(), ranks=())

    def open(self, folder: Path) -> Launched:
        """Return these ranks, if all of them see `folder`, which is made.

        Raises:
            UsageError: they do not.
        """
        self.folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        mark = secrets.token_hex(16)
        (folder / MARK).write_text(mark)
        self.ask("see", str(self.folder), mark)
        return self

    def ask(self, do: str, *arguments: object, each: Sequence[Sequence[object]] | None = None) -> list[Any]:
        """See `RankGroup.ask`."""
        if self._is_lost:
            raise EngineFault(f"ranks of the learner, asked to {do}: they were ended; resume the run")
        own = repeat(()) if each is None else each
        parts = [[*arguments, *more] for _, more in zip(range(self.count), own, strict=each is not None)]
        self._do = do
        self._monitor.begin(do, time.monotonic())
        try:
            for number in range(1, self.count):
                self._say(number, {"do": do, "with": parts[number]})
            answers = [self._host.answer(do, parts[0])]
            self._monitor.settle(0)
            for number in range(1, self.count if "fault" not in answers[0] else 0):
                answers.append(self._hear(number))
                self._monitor.settle(number)
        except RuntimeError as error:
            self._lose(do, {"fault": f"lost another: {_first_line(error)}"})
        if "fault" in answers[0]:
            self._lose(do, answers[0])
        return [answer.get("value") for answer in answers]

    def close(self) -> None:
        """Let the others end; may be repeated."""
        self._end_beats()
        if self._line is not None and not self._is_lost:
            with suppress(RuntimeError):
                for number in range(1, self.count):
                    self._say(number, {"do": END})
                dist.destroy_process_group()
        self._is_lost = True
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def follow(self) -> None:
        """Do what the first process asks, until it lets this one end. What tells it to stop comes from there, too.

        Raises:
            EngineFault: it is gone. QuintainError: what cannot be done here.
        """
        if threading.current_thread() is threading.main_thread():
            # torchrun tells all; the first process saves, and needs the others for it.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        self._do = WAIT
        self._monitor.begin(WAIT, time.monotonic(), ranks=[0])
        try:
            while (frame := self._hear(0))["do"] != END:
                answer = self._host.answer(frame["do"], frame["with"])
                if "fault" in answer:
                    self._store.set(f"fault/{self.rank}", json.dumps(answer))
                    kind: type[QuintainError] = find_error_class(answer.get("class")) or EngineFault
                    raise kind(f"rank {self.rank} of {self.count}, asked to {frame['do']}: {answer['fault']}")
                self._say(0, answer)
        except RuntimeError as error:
            raise EngineFault(
                f"rank {self.rank} of {self.count}: the first process is gone ({_first_line(error)}); it says why"
            ) from error
        finally:
            self._end_beats()
        self._is_lost = True
        dist.destroy_process_group()

    def _exchange_beats(self) -> None:
        """Tell the others how far this rank has come, and note what they tell, until the end."""
        # A connection of its own: whoever waits at the other holds it.
        store: Store = cast(Any, self._store).clone()
        while not self._is_over.wait(BEAT):
            with suppress(dist.DistError):
                beat = [time.monotonic(), asdict(self._host.read_heartbeat())]
                store.set(f"beat/{self.rank}", json.dumps(beat))
                for number in range(self.count):
                    if store.check([f"beat/{number}"]):
                        self._note_beat(number, json.loads(store.get(f"beat/{number}")))

    def _end_beats(self) -> None:
        """End the threads: one that still talks to the store when Python ends would take the process with it."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _note_beat(self, number: int, beat: list[Any]) -> None:
        if beat != self._beats.get(number):
            self._monitor.note(number, Heartbeat(**beat[1]), time.monotonic())
        self._beats[number] = beat

    def _end_where_one_hangs(self) -> None:
        """End this process where another hangs: nothing else ends the collective in which it waits for it."""
        while not self._is_over.wait(BEAT):
            if (found := self._monitor.find_hung(time.monotonic())) is None or self._is_over.is_set():
                continue
            number, words = found
            who = "a rank" if number is None else f"rank {number} ({self._hosts[number]})"
            end_process(
                f"ranks of the learner, asked to {self._do}: {who} of {self.count} {words}; torchrun ends all, and the "
                "run can be resumed from its last checkpoint"
            )

    def _say(self, number: int, row: Row) -> None:
        data = torch.frombuffer(bytearray(json.dumps(row).encode()), dtype=torch.uint8)
        for part in (torch.tensor([len(data)]), data):
            dist.send(part, number, group=self._line)

    def _hear(self, number: int) -> Row:
        def receive(empty: Tensor) -> Tensor:
            dist.recv(empty, number, group=self._line)
            return empty

        length = int(receive(torch.zeros(1, dtype=torch.int64)))
        return json.loads(receive(torch.empty(length, dtype=torch.uint8)).numpy().tobytes())

    def _read(self, key: str, seconds: float) -> Any:
        self._store.wait([key], timedelta(seconds=seconds))
        return json.loads(self._store.get(key))

    def _lose(self, do: str, own: Row) -> NoReturn:
        """Raise the error that says why ranks cannot go on: of the one that told it, else what was seen here."""
        self._is_lost = True
        number, found = 0, own
        with suppress(dist.DistError):
            for other in range(1, self.count):
                if self._store.check([f"fault/{other}"]):
                    number, found = other, json.loads(self._store.get(f"fault/{other}"))
                    break
        raise (find_error_class(found.get("class")) or EngineFault)(
            f"ranks of the learner, asked to {do}: rank {number} of {self.count} said: {found['fault']}; torchrun ends "
            "all, and the run can be resumed from its last checkpoint"
        )


@cache
def join_torchrun() -> Launched | None:
    """Return this process among those that torchrun has started; None where something else did.

    Raises:
        EngineFault: they cannot meet.
    """
    if not dist.is_torchelastic_launched():
        return None
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=timedelta(seconds=MEETING))))
    except (dist.DistError, ValueError) as error:
        raise EngineFault(
            f"torchrun: got {_first_line(error)} where its processes meet; give an address that all machines reach "
            "and a port that is free (--rdzv-endpoint HOST:PORT)"
        ) from error
    return Launched(rank, count, store)


def end_process(message: str) -> NoReturn:
    """End this process at once, as an `EngineFault` would."""
    write_line(f"quintain: error: {message}", is_error=True)
    os._exit(EngineFault.exit_code)


def count_ranks(asked: int) -> int:
    """Return in how many ranks is learned: those that torchrun has started, else those that were `asked` for.

    Raises:
        UsageError: both are there, and differ.
    """
    found = join_torchrun()
    if found is None:
        return asked
    if asked not in (0, found.count):
        raise UsageError(
            f"learner_ranks: got {asked} with {found.count} processes of torchrun; leave it out, or give "
            "torchrun as many"
        )
    return found.count


@contextmanager
def driving(config: Mapping[str, Any], device: str) -> Generator[bool]:
    """Yield whether this process drives; as one of torchrun's others it has then done its part.

    Raises:
        UsageError: the others have another version or `config`. EngineFault: one does not come, or is lost.
    """
    found = join_torchrun()
    if found is None:
        yield True
        return
    found.meet(config, device)
    if found.rank:
        found.follow()
        yield False
        return
    try:
        yield True
    finally:
        found.close()


def _difference(rows: Sequence[Row]) -> str:
    """Return what the first process with another version or configuration has, and what the driver has; "" for none."""
    (first, *others) = rows
    for number, row in enumerate(others, 1):
        for key in {**first["runs"], **row["runs"]}:
            one, other = (each["runs"].get(key) for each in (first, row))
            if one != other:
                return (
                    f"torchrun: got {key} {other!r} in rank {number} ({row['host']}) for {one!r} in the first "
                    f"({first['host']}); give all machines the same packages, command and files"
                )
    return ""


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__} ({str(error).strip().partition(chr(10))[0]:.200})"
