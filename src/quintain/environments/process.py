"""Environment code in this process: it may not end the process without a word, nor return in two of them.

An environment runs in the process that trains. ``os._exit`` in it would end the run with a status of its own choice and
nothing said, and a process that it forks and lets return would be a second copy of the whole run, with the same journal
open. While such code runs, the first is an `EnvironmentFault`, and so is the second, whose copy is ended where it comes
back. What a library in C does to the process is out of reach: ``worker/`` plays such environments in one of their own.
"""

import mmap
import os
import sys
import threading
from types import TracebackType
from typing import NoReturn

from quintain.errors import EnvironmentFault

_here = threading.local()
"""`process`: the number of the process in which this thread entered environment code."""
_copied = mmap.mmap(-1, 8)
"""Shared with all processes that are forked: the number of the one of which an environment made a copy."""
_leave = os._exit


class ProcessWatch:
    """While entered, this thread runs environment code: ``with ProcessWatch(): environment.step(action)``.

    Raises:
        EnvironmentFault: on leaving, where the code forked a process that came back, too; that one is ended.
    """

    __slots__ = ("_before", "_process")

    def __enter__(self) -> None:
        """Note which process this is."""
        self._process, self._before = os.getpid(), getattr(_here, "process", 0)
        _here.process = self._process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a copy of the process, or say that there was one."""
        _here.process = self._before
        if os.getpid() != self._process:
            _copied[:] = self._process.to_bytes(8, sys.byteorder)
            _leave(EnvironmentFault.exit_code)
        if _copied[:] == self._process.to_bytes(8, sys.byteorder):
            _copied[:] = bytes(8)
            raise EnvironmentFault(
                "a process was forked that came back as a second copy of the run, which was ended; let a child leave "
                "by os._exit(0), or start it with subprocess"
            )


def _refuse(status: int) -> NoReturn:
    """End the process as ``os._exit`` does, unless environment code asks for it in the process that plays it."""
    if getattr(_here, "process", 0) == os.getpid():
        raise EnvironmentFault(
            f"os._exit({status}) was called, which would end the whole run without a word; raise an error, or end the "
            "episode"
        )
    _leave(status)


os._exit = _refuse
