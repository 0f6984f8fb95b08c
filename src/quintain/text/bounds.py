"""Bounds on the time and the memory that a chat template may take.

A template is a program that came with a model: Jinja's sandbox keeps it from objects it must not touch, but not
from looping or growing for ever. While one renders, a second thread looks on and interrupts it. The one rule: an
interrupted template is an error of the model, and nothing of what it wrote is used.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 5.0
"""Time of the processor that one rendering may take; a process that is stopped, or waits for its turn, takes none."""
GROWTH_BYTES = 1 << 30
"""Memory by which the process may grow during one rendering."""
TICK = 0.02
"""Seconds between two looks."""
_PAGE = 4096


class TemplateBoundError(Exception):
    """A template took too long, or too much memory."""


@contextmanager
def bounded(*, holds_memory: bool = False) -> Generator[None]:
    """Interrupt what is done within after `SECONDS`, or when the process has grown by `GROWTH_BYTES`.

    With `holds_memory` the kernel refuses twice that growth at once, for all threads of the process; for use while
    nothing else works.

    Raises:
        TemplateBoundError: it was interrupted.
    """
    watch = _Watch(threading.get_ident())
    thread = threading.Thread(target=watch.look, name="quintain-template", daemon=True)
    with _held_memory(holds_memory):
        thread.start()
        try:
            yield
        finally:
            watch.end()


class _Watch:
    """Looks on while the thread `target` renders."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._most_bytes = _resident() + GROWTH_BYTES
        self._clock = time.CLOCK_MONOTONIC if sys.platform != "linux" else time.pthread_getcpuclockid(target)
        self._until = time.clock_gettime(self._clock) + SECONDS

    def look(self) -> None:
        """Interrupt the target when it passes a bound, unless it has ended."""
        while not self._done.wait(TICK):
            if time.clock_gettime(self._clock) > self._until or _resident() > self._most_bytes:
                with self._lock:
                    if not self._done.is_set():
                        error = ctypes.py_object(TemplateBoundError)
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._target), error)
                return

    def end(self) -> None:
        """Say that the target has ended; from here on it is not interrupted."""
        with self._lock:
            self._done.set()


def _resident() -> int:
    """Return the bytes of memory that this process holds; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE


@contextmanager
def _held_memory(is_held: bool) -> Generator[None]:
    """Let the kernel refuse memory beyond what the process has and twice `GROWTH_BYTES`."""
    if not is_held or sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_bytes().split()[0]) * _PAGE + 2 * GROWTH_BYTES
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([size, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
