"""A server of a model that we start: on a port of this machine, kept, with what it prints in a file.

It ends with us, and with everything it started, however we end; see `processes.keeper`.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain.errors import EngineFault, UsageError
from quintain.processes.child import Child, ending

SOURCES = Path(__file__).resolve().parents[2]
HERE = "127.0.0.1"
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from quintain.processes.keeper import fork_keeper
fork_keeper()
said = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for number in (1, 2):
    os.dup2(said, number)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execvp(sys.argv[3], sys.argv[3:])
"""
LONGEST_LOG = 1 << 16
"""Bytes at the end of the log that are looked through for what went wrong."""
SIGNS = ("Error", "error:", "Exception")
"""What a line of a log that says what went wrong has in it."""
MUTE = (
    "WARNING",
    "EngineCore initialization failed",
    "WorkerProc initialization failed",
    "see root cause above",
    "EngineCore encountered an issue",
    "Error in token generation stream",
)
"""What a line has that tells of something else, or only that another line tells it."""
LONGEST_LINE = 300


class ServerProcess:
    """A program that serves: ``ServerProcess("vLLM", ["vllm", "serve", ...], {"VLLM_SERVER_DEV_MODE": "1"})``."""

    def __init__(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start it; `variables` are put into its environment.

        Raises:
            EngineFault: the system cannot start it.
        """
        self.name = name
        given = [f"{key}={value}" for key, value in variables.items()]
        folder = tempfile.mkdtemp(prefix="quintain-server-")
        self._log = Path(folder) / "log"
        places = [str(SOURCES), str(self._log)]
        kept = [sys.executable, "-P", "-X", "utf8", "-c", PROGRAM, *places, "env", *given, *command]
        try:
            self._child = Child(kept)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise EngineFault(f"{name}: got {error} from the system; free memory or processes") from error
        self.end = weakref.finalize(self, _end, self._child, folder)
        """ends it; may be repeated"""

    @property
    def process_id(self) -> int:
        """Number of the process that keeps the server."""
        return self._child.process.pid

    def poll_end(self, seconds: float = 0.0) -> str:
        """Return how it ended and what it said last, if it does so within so many seconds; an empty text if not."""
        code = self._child.wait(seconds)
        return "" if code is None else f"ended with {ending(code)}{self.last_words()}"

    def last_words(self) -> str:
        """Return the last line of its log that says what went wrong, or the last of all."""
        try:
            log = self._log.read_bytes()[-LONGEST_LOG:].decode("utf-8", "replace")
        except OSError:
            return ""
        lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
        telling = [
            line
            for line in lines
            if any(sign in line for sign in SIGNS) and not any(mute in line for mute in MUTE)
        ]
        found = (telling or lines or [""])[-1]
        return f"; it said: {found[-LONGEST_LINE:]}" if found else ""


def _end(child: Child, folder: str) -> None:
    """End a server and delete its log."""
    child.end()
    shutil.rmtree(folder, ignore_errors=True)


def find_program(program: str, usual: str, *, kind: str, advice: str) -> str:
    """Return the path of `program`, or of the `usual` one where none is named.

    Raises:
        UsageError: there is none.
    """
    found = shutil.which(program or usual)
    if found is None:
        raise UsageError(f"engine {kind}: got no program {program or usual!r} here; {advice}")
    return str(Path(found).absolute())


def free_port(wanted: int = 0) -> int:
    """Return a port of this machine on which nobody listens: the `wanted` one, or any where that is 0.

    Raises:
        UsageError: it is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HERE, wanted))
        except OSError as error:
            raise UsageError(
                f"port of an engine's server: got {wanted}, which is taken ({error.strerror}); end what listens there, "
                "or leave port out for a free one"
            ) from error
        return int(probe.getsockname()[1])
