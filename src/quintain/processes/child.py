"""A process that we started, with pipes to its three standard streams, ended as a whole.

Its program has a keeper (see `processes.keeper`): it ends with everything it started when we tell it to, and
when we are gone. `kill` may be called from any thread and at any time; `end` when nobody reads.
"""

import os
import platform
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress

from quintain.errors import EnvironmentFault, UsageError
from quintain.processes.keeper import FOLDER
from quintain.processes.tree import below, send

PATIENCE = 1.0
"""Seconds that the keeper has to end its tree before we do it."""
END_DEADLINE = 5.0


class Child:
    """A command that runs in a session and with a folder for temporary files of its own."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start `command`.

        Raises:
            OSError: the system cannot start it. UsageError: it is none whose processes can be kept.
        """
        if not hasattr(os, "pidfd_open"):
            raise UsageError(
                f"a process of our own: got the system {platform.system()}, and its end is seen on Linux alone; take "
                "the engine local, no --learner-ranks, and environments that need no process of their own"
            )
        self.folder = tempfile.mkdtemp(prefix=FOLDER)
        self._ending = threading.Lock()
        try:
            self.process = subprocess.Popen(
                # By way of env, which becomes the command: nothing here reads or changes our own variables.
                ["env", f"TMPDIR={self.folder}", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.exited = os.pidfd_open(self.process.pid)
        """A file descriptor that can be read from when it has ended."""

    def find_passed_limit(self) -> str:
        """Return nothing: a child has no limit but its deadlines."""
        return ""

    def kill(self) -> None:
        """End its tree, and do not wait; whoever reads from it learns that it is gone."""
        with self._ending:
            if self.process.returncode is None:
                send(below(self.process.pid), signal.SIGKILL)
                send([self.process.pid], signal.SIGTERM)
                send([self.process.pid], signal.SIGCONT)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code if it ends by itself within so many seconds; 128 + n after signal n."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> int:
        """Let its keeper end the tree, bury it, free pipes and folder, and return its exit code; may be repeated.

        Raises:
            EnvironmentFault: the system did not end it in time.
        """
        with self._ending:
            process = self.process
            if process.poll() is None:
                send([process.pid], signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE)
            if process.returncode is None:
                send([*below(process.pid), process.pid], signal.SIGKILL)
                self._wait()
            close_streams(process)
            if self.exited >= 0:
                os.close(self.exited)
                self.exited = -1
            shutil.rmtree(self.folder, ignore_errors=True)
            assert process.returncode is not None, "it was waited for"
            return process.returncode

    def _wait(self) -> None:
        """Wait for the end of a process that was killed."""
        try:
            self.process.wait(END_DEADLINE)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(
                f"ending process {self.process.pid}: it was still there after {END_DEADLINE:g} s; "
                "see what the system waits for"
            ) from error


def close_streams(process: subprocess.Popen[bytes]) -> None:
    """Close our ends of the pipes to `process`, broken ones too."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def ending(code: int) -> str:
    """Return the exit `code` of a kept process in words: ``"signal SIGSEGV"``, ``"exit status 3"``."""
    number = code - 128 if code > 128 else -code
    if number in {each.value for each in signal.Signals}:
        return f"signal {signal.Signals(number).name}"
    return f"exit status {code}"
