"""What environments leave behind when a rollout ends: threads, processes, calls that never returned.

Said once, with the environment's name, in the log: a leak slows a long run down until it dies of something else. Only
what appeared while environment code ran, and outlives `close`, is held against it.
"""

import logging
import time
from collections.abc import Callable

import psutil

from quintain.environments.boundary import spec_of
from quintain.processes.usage import children
from quintain.rollout.stepper import Stepper
from quintain.safety.warm import waiting

PATIENCE = 0.5
"""Seconds that threads and processes have to end after `close`."""
_log = logging.getLogger("quintain.rollout")


class Leaks:
    """Watches the environments that `make` builds and `stepper` runs, from its construction on."""

    def __init__(self, make: Callable[..., object], stepper: Stepper) -> None:
        self.make = make
        self.stepper = stepper
        self._before = frozenset(children())

    def report(self) -> None:
        """Warn of what is still there; to be called when every environment is closed."""
        until = time.monotonic() + PATIENCE
        while (found := self._list_leaks()) and time.monotonic() < until:
            time.sleep(0.02)
        if found:
            _log.warning(
                "environment %s left %s behind after close(); end them there",
                spec_of(self.make),
                ", ".join(found),
            )

    def _list_leaks(self) -> list[str]:
        """Return what is there in words: ``["2 threads (reader, writer)", "1 processes (4711)"]``."""
        threads = [thread.name for thread in self.stepper.started if thread.is_alive()]
        known = self._before | waiting()  # interpreters that wait for the next episode stay
        processes = [str(number) for number in children() if number not in known and is_alive(number)]
        found = [
            f"{len(names)} {kind} ({', '.join(sorted(names)[:5])})"
            for kind, names in (("threads", threads), ("processes", processes))
            if names
        ]
        hanging = sum(thread.is_alive() for thread in self.stepper.abandoned)
        return [*found, f"{hanging} calls that never returned"] if hanging else found


def is_alive(number: int) -> bool:
    """Whether process `number` runs and is not Python's own tracker of shared memory."""
    try:
        process = psutil.Process(number)
        is_tracker = any("multiprocessing.resource_tracker" in word for word in process.cmdline())
        return process.status() != psutil.STATUS_ZOMBIE and not is_tracker
    except psutil.Error:
        return False
