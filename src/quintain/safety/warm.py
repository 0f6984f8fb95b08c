"""Boxes that are there at once: an interpreter that waits in a box forks a worker for each episode.

Starting a box costs a tenth of a second, most of it for an interpreter that is the same every time. So one waits in a
box of its own (`quintain.safety.forker`) and forks a worker into fresh namespaces, which is shut in as any box is; see
there. It forks ahead: while it is on the shelf, its next worker is shut in and waits, too. A worker serves one episode,
and ends with all its processes; nothing of it is left. The interpreter serves one episode at a time, so that no two
share a user id, and goes back to the shelf when its worker is gone. Where any of this does not work, a box is started
as ever.
"""

import array
import base64
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from quintain.errors import SandboxError
from quintain.processes.tree import below
from quintain.safety import box
from quintain.safety.box import END_DEADLINE, TICK, Box, used_up
from quintain.safety.isolation import find_interpreter, hold_in_memory
from quintain.safety.limits import Limits, Reason

WORKER, FORKER, SETTINGS = "/worker.py", "/forker.py", "/settings.json"
START_DEADLINE, FORK_DEADLINE = 60.0, 20.0
MAX_IDLE, SPARE = 64, 1
"""Interpreters that wait on the shelf: at most, and those that stay when one is taken for the second time."""
CREDENTIALS = struct.Struct("iII")


@dataclass(frozen=True, slots=True)
class Pipes:
    """The outer ends of a worker's standard streams."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


class Nursery:
    """An interpreter that waits in a box: ``Nursery(Limits()).fork({})``."""

    def __init__(self, limits: Limits) -> None:
        """Start it.

        Raises:
            SandboxError: it does not come up.
        """
        self.limits = limits
        program, mounts = find_interpreter()
        call_filter = base64.b64encode(_content(box.open_filter())).decode()
        settings = {"size": limits.scratch_bytes, "filter": call_filter}
        files = {place: source(place) for place in (WORKER, FORKER)}
        files[SETTINGS] = json.dumps(settings).encode()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            self.box = Box(
                [program, "-I", "-S", "-B", "-X", "utf8", FORKER],
                limits,
                files=files,
                mounts=mounts,
                stdin=theirs.fileno(),
                forks=True,
            )
        self.has_served = False
        """Whether it has forked a worker that was used."""
        self._hear(b"ready", START_DEADLINE)
        self._fork_ahead()

    @property
    def process(self) -> int:
        """The process that we started."""
        return self.box.process.pid

    def fork(self, files: Mapping[str, bytes]) -> "WarmBox":
        """Return a worker among `files`: absolute path in the box → content.

        Raises:
            SandboxError: it does not come up; the interpreter is gone, too.
        """
        order = {name: base64.b64encode(content).decode() for name, content in files.items()}
        (requests, stdin), (stdout, replies), (stderr, text) = os.pipe(), os.pipe(), os.pipe()
        inner = [hold_in_memory(json.dumps(order).encode()), requests, replies, text]
        try:
            if self.has_served:
                self._hear(b"over", END_DEADLINE)
            keeper, worker = self._hear(b"forking", FORK_DEADLINE), self._hear(b"begun", FORK_DEADLINE)
            exited = os.pidfd_open(worker)
            sent = array.array("i", inner).tobytes()
            self._control.sendmsg([b"order"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
            self.has_served = True
        except (OSError, SandboxError) as error:
            for handle in (stdin, stdout, stderr):
                os.close(handle)
            self.end()
            raise SandboxError(
                f"forking in a sandbox: got {error}; check that the machine has room"
            ) from error
        finally:
            for handle in inner:
                os.close(handle)
        pipes = Pipes(os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0))
        return WarmBox(self, keeper, worker, exited, pipes)

    def rest(self) -> None:
        """Bury the worker, which has ended, and shut in the next one; this waits for neither."""
        with suppress(OSError):  # it is gone: whoever takes it is told
            self._fork_ahead()

    def end(self) -> None:
        """End it, and its worker; safe to call twice."""
        self._control.close()
        self.box.end()

    def _fork_ahead(self) -> None:
        """Have a worker forked, which waits for its order.

        Raises:
            OSError: the interpreter is gone.
        """
        self._control.send(b"next")

    def _hear(self, wanted: bytes, seconds: float) -> int:
        """Return the process that said `wanted`, as the kernel names it; it has run no code of an agent by then.

        Raises:
            SandboxError: something else was said, or nothing in time.
        """
        self._control.settimeout(seconds)
        said, sender = b"", 0
        with suppress(TimeoutError, OSError):
            said, about, _, _ = self._control.recvmsg(4096, socket.CMSG_SPACE(CREDENTIALS.size))
            for _, kind, data in about:
                if kind == socket.SCM_CREDENTIALS:
                    sender = CREDENTIALS.unpack(data[: CREDENTIALS.size])[0]
        if said != wanted or not sender:
            self.end()
            got = said.decode(errors="replace") or "nothing"
            raise SandboxError(
                f"an interpreter in a sandbox: got {got!r} for {wanted.decode()}; see what the system refuses"
            )
        return sender


class WarmBox:
    """A worker in namespaces of its own; the same to its user as a `Box`."""

    def __init__(self, nursery: Nursery, keeper: int, worker: int, exited: int, pipes: Pipes) -> None:
        self.limits, self.pipes, self.exited = nursery.limits, pipes, exited
        self.root = keeper
        self.first = [worker]
        self._nursery: Nursery | None = nursery
        self._outer, self._num_before = nursery.box, nursery.box.num_kills
        self._looked = time.monotonic()

    def find_passed_limit(self) -> Reason:
        """Return the limit that the worker has passed, if it is time to look again."""
        now = time.monotonic()
        if now - self._looked < TICK:
            return ""
        self._looked = now
        processes = below(self.root)
        return "memory" if self.is_starved else used_up(processes, processes[:1], self.limits)

    @property
    def is_starved(self) -> bool:
        """Whether the kernel has killed a process of it for its memory."""
        return self._outer.num_kills > self._num_before

    def end(self) -> None:
        """Kill the worker, with whom all its processes go, and give the interpreter back; safe to call twice.

        Raises:
            SandboxError: the kernel did not end it in time.
        """
        nursery, self._nursery = self._nursery, None
        if nursery is None:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.exited, signal.SIGKILL)
        gone, _, _ = select.select([self.exited], [], [], END_DEADLINE)
        os.close(self.exited)
        for stream in (self.pipes.stdin, self.pipes.stdout, self.pipes.stderr):
            stream.close()
        if not gone:
            nursery.end()
            raise SandboxError(
                f"ending sandbox {self.first[0]}: it was still there after {END_DEADLINE:g} s; "
                "see what the system waits for"
            )
        nursery.rest()
        _shelf.put(nursery)


class Shelf:
    """Interpreters that wait, by the limits that they were started with; a forked process has a shelf of its own.

    Whoever takes one that has served before leaves `spare` others, so that one forks ahead while another is in use.
    """

    def __init__(self, spare: int = SPARE) -> None:
        self.spare = spare
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def take(self, limits: Limits) -> Nursery:
        """Return an interpreter with `limits`, which is yours until it is put back.

        Raises:
            SandboxError: none can be started.
        """
        with self._lock:
            fitting = [one for one in self._idle if kernel_limits(one.limits) == kernel_limits(limits)]
            for nursery in fitting[:1]:
                self._idle.remove(nursery)
        if not fitting:
            return self._start(limits)
        if fitting[0].has_served and len(fitting) <= self.spare:
            self.put(self._start(limits))
        fitting[0].limits = limits
        return fitting[0]

    def put(self, nursery: Nursery) -> None:
        """Keep `nursery` for the next episode; of too many the oldest ends."""
        with self._lock:
            self._idle.append(nursery)
            surplus = self._idle.pop(0) if len(self._idle) > MAX_IDLE else None
            if surplus is not None:
                self._all.discard(surplus.process)
        if surplus is not None:
            surplus.end()

    def forget(self, nursery: Nursery) -> None:
        """Count `nursery`, which has ended, no more."""
        with self._lock:
            self._all.discard(nursery.process)

    def processes(self) -> frozenset[int]:
        """Return the processes that were started for interpreters."""
        return frozenset(self._all)

    def _start(self, limits: Limits) -> Nursery:
        """Return a new interpreter with `limits`, which is yours.

        Raises:
            SandboxError: it does not come up.
        """
        made = Nursery(limits)
        with self._lock:
            self._all.add(made.process)
        return made

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Nursery] = []
        self._all: set[int] = set()


def source(place: str) -> bytes:
    """Return the text of the program that stands at `place` in a box."""
    return Path(__file__).with_name(place[1:]).read_bytes()


def kernel_limits(limits: Limits) -> tuple[int, int, int]:
    """Return the limits that the kernel holds an interpreter to from its start."""
    return limits.memory_bytes, limits.processes, limits.scratch_bytes


_shelf = Shelf()


def worker_box(limits: Limits, files: Mapping[str, bytes]) -> "WarmBox | None":
    """Return a worker among `files`, forked from an interpreter that waits; None where that cannot be had.

    Raises:
        SandboxError: isolation is missing or does not work.
    """
    box.require()
    if not works():
        return None
    nursery: Nursery | None = None
    try:
        nursery = _shelf.take(limits)
        return nursery.fork(files)
    except SandboxError:
        if nursery is not None:
            _shelf.forget(nursery)
        return None


@cache
def works() -> bool:
    """Whether interpreters can wait and fork on this machine; it is tried once."""
    try:
        _shelf.take(Limits()).fork({}).end()
    except (SandboxError, OSError):
        return False
    return True


def waiting() -> frozenset[int]:
    """Return the processes of interpreters that wait, or work, which outlive environments on purpose."""
    return _shelf.processes()


def _content(handle: int | None) -> bytes:
    """Return what can be read from `handle`, and close it."""
    if handle is None:
        return b""
    with os.fdopen(handle, "rb") as file:
        return file.read()
