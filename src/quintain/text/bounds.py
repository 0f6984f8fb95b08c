"""Bounds on the time and the memory that a chat template may take.

A template is a program that came with a model: Jinja's sandbox keeps it from objects it must not touch, but not
from looping or growing for ever. While templates render, one more thread looks on and interrupts them. The one rule: an
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
THREAD = "quintain-template"
"""Name of the thread that looks at the clock, which never ends."""
QUIET_TICKS = 50
"""Looks without a rendering after which the thread that looks sleeps until the next one."""
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
    with _held_memory(holds_memory):
        _watcher.begin(watch)
        try:
            yield
        finally:
            watch.end()
            _watcher.end(watch)


class _Watch:
    """One rendering, by the thread `target`; its bounds count from the first look."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_done = False
        self._lock = threading.Lock()
        self._bounds: tuple[int, float, int] | None = None
        """clock, its time and the memory at which the rendering is interrupted"""

    def look(self) -> None:
        """Interrupt the target when it has passed a bound, unless it has ended."""
        with self._lock:
            if self._is_done:
                return
            if self._bounds is None:
                clock = time.CLOCK_MONOTONIC
                if sys.platform == "linux":
                    clock = time.pthread_getcpuclockid(self._target)
                self._bounds = clock, time.clock_gettime(clock) + SECONDS, _resident() + GROWTH_BYTES
            clock, until, most_bytes = self._bounds
            if time.clock_gettime(clock) > until or _resident() > most_bytes:
                error = ctypes.py_object(TemplateBoundError)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._target), error)
                self._is_done = True

    def end(self) -> None:
        """Say that the target has ended; from here on it is not interrupted."""
        with self._lock:
            self._is_done = True


class _Watcher:
    """The thread that looks at all renderings, every `TICK` while there are any; most end before its first look."""

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, watch: _Watch) -> None:
        """Look at `watch` from now on."""
        self._watches[id(watch)] = watch
        if self._thread is None or not self._thread.is_alive():
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def end(self, watch: _Watch) -> None:
        """Look at `watch` no longer."""
        self._watches.pop(id(watch), None)

    def _start(self) -> None:
        """Start the thread: the first time, and in a process that was forked."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name=THREAD, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        """Look, and sleep when there is nothing to look at."""
        quiet = 0
        while True:
            quiet = 0 if self._watches else quiet + 1
            if quiet > QUIET_TICKS:
                self._wake.clear()
                if not self._watches:
                    self._wake.wait()
                quiet = 0
            time.sleep(TICK)
            for watch in list(self._watches.values()):
                watch.look()


_watcher = _Watcher()


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
