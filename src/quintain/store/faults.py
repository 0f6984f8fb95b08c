"""The fault shim: makes the N-th I/O operation of the store fail, so that anybody can run the crash tests.

``QUINTAIN_FAULT=io:N:KIND`` lets operation number N (from 1) die (`exit` leaves like a kill, `kill` is a real SIGKILL)
or fail (`ENOSPC`, `EIO`, `EMFILE`). Every operation of an append, a commit or a checkpoint passes through `point` just
before it happens; without the variable `point` does nothing.
"""

import errno
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from quintain.errors import UsageError

_ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EMFILE": errno.EMFILE}
_KINDS = ("exit", "kill", *_ERRORS)


class Fault:
    """A fault that waits for its operation; `calls` lists the operations that it has seen."""

    def __init__(self, spec: str) -> None:
        """Read `spec`, as in ``io:7:ENOSPC``; raise `UsageError` for anything else."""
        self.calls: list[str] = []
        family, _, rest = spec.partition(":")
        number, _, kind = rest.partition(":")
        if family != "io" or not number.isdecimal() or kind not in _KINDS:
            raise UsageError(
                f"QUINTAIN_FAULT: got {spec!r}; write io:N:KIND with KIND one of {', '.join(_KINDS)}"
            )
        self.number, self.kind = int(number), kind

    def strike(self, operation: str, path: Path) -> None:
        """Count `operation` and, if it is the chosen one, fail it."""
        self.calls.append(f"{operation} {path.name}")
        if len(self.calls) != self.number:
            return
        if self.kind == "exit":
            os._exit(137)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code = _ERRORS[self.kind]
        raise OSError(code, os.strerror(code), str(path))


class Listener(Protocol):
    """What hears of every operation; it may raise, or end the process."""

    def strike(self, operation: str, path: Path) -> None:
        """Hear of `operation` on `path`, which is about to happen."""
        ...


def _from_environment() -> Fault | None:
    spec = os.environ.get("QUINTAIN_FAULT")  # noqa: TID251 - any program can be put under the crash tests
    return Fault(spec) if spec else None


_active: list[Listener] = [fault for fault in [_from_environment()] if fault]


@contextmanager
def inject(spec: str) -> Generator[Fault]:
    """Let the fault `spec` act inside the block. Number 0 never strikes and only counts."""
    fault = Fault(spec)
    with listen(fault):
        yield fault


@contextmanager
def listen(listener: Listener) -> Generator[None]:
    """Let `listener` hear of every operation inside the block."""
    _active.append(listener)
    try:
        yield
    finally:
        _active.remove(listener)


def point(operation: str, path: Path) -> None:
    """Announce that `operation` on `path` is about to happen."""
    for fault in _active:
        fault.strike(operation, path)
