"""A box: a command in isolation, watched from outside and ended as a whole.

A box dies with the thread that started it (the kernel binds the two), so all are started by one thread that never
ends. Ending a box ends every process in it, because its first process goes first and the kernel takes the rest along;
none of them is left as a zombie.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePosixPath

from quintain.errors import SandboxError, UsageError
from quintain.processes.child import close_streams
from quintain.processes.tree import below, memory, send, socket_memory
from quintain.safety.cgroup import SLACK, Cgroup
from quintain.safety.isolation import hold_in_memory, isolate, open_filter, require
from quintain.safety.limits import Limits, Reason

TICK = 0.03
"""Seconds between two looks at the memory of a box."""
MAX_FILES = 128
THREAD = "quintain-sandbox"
"""Name of the thread that starts boxes, which never ends."""
END_DEADLINE = 10.0


class _Starter:
    """The one thread that starts boxes; a process that was forked off has one of its own."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def start(self, line: Sequence[str], handles: Sequence[int], stdin: int) -> subprocess.Popen[bytes]:
        """Start `line` with an empty environment."""
        return self._thread.submit(_start_process, line, handles, stdin).result(END_DEADLINE)

    def _renew(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=THREAD)


_starter = _Starter()


class Box:
    """A command that runs in isolation, with pipes to its three standard streams."""

    def __init__(
        self,
        command: Sequence[str],
        limits: Limits,
        *,
        files: Mapping[str, bytes],
        mounts: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
        forks: bool = False,
    ) -> None:
        """Start `command` among `files`: absolute path in the box → content.

        `stdin` is as for `subprocess.Popen`; one that `forks` is our own, see `isolate`.

        Raises:
            SandboxError: isolation is missing, does not work, or the system cannot start a process.
        """
        require()
        self.limits = limits
        self._looked, self._num_kills = 0.0, 0
        handles = [hold_in_memory(content) for content in files.values()]
        placed = [
            word
            for handle, path in zip(handles, files, strict=True)
            for word in ("--perms", "0644", "--file", str(handle), path)
        ]
        call_filter = None if forks else open_filter()
        line = isolate(command, limits, mounts=[*mounts, *placed], call_filter=call_filter, forks=forks)
        handles += [] if call_filter is None else [call_filter]
        self._group = Cgroup.make(limits.memory_bytes + limits.scratch_bytes + SLACK)
        try:
            self.process = _starter.start(
                line if self._group is None else self._group.enter(line), handles, stdin
            )
        except OSError as error:
            self._leave()
            raise SandboxError(
                f"starting a sandbox: got {error}; free processes or memory, and check that bubblewrap runs"
            ) from error
        finally:
            for handle in handles:
                os.close(handle)
        self.exited = os.pidfd_open(self.process.pid)
        """A file descriptor that can be read from when the command has ended."""
        self.first: list[int] = []
        """The first process of the box, once it was looked for."""
        self.pipes, self.root = self.process, self.process.pid
        """Its streams, and the process whose children are the box."""

    @property
    def num_kills(self) -> int:
        """How many of its processes the kernel has killed for their memory; it is known after its end, too."""
        return self._num_kills if self._group is None else self._group.num_kills

    @property
    def is_starved(self) -> bool:
        """Whether the kernel has killed a process of it for its memory."""
        return self.num_kills > 0

    def find_passed_limit(self) -> Reason:
        """Return the limit that the box has passed, if it is time to look again."""
        now = time.monotonic()
        if now - self._looked < TICK:
            return ""
        self._looked = now
        processes = below(self.process.pid)
        return "memory" if self.is_starved else used_up(processes, processes[-1:], self.limits)

    def end(self) -> int:
        """Kill whatever still runs, wait for it, and return the exit code; safe to call twice.

        Raises:
            SandboxError: the kernel did not end it in time.
        """
        process = self.process
        patience = time.monotonic() + END_DEADLINE
        while process.poll() is None:
            # Its parent, bubblewrap, buries the first process of the box and then ends by itself.
            send(below(process.pid) or [process.pid], signal.SIGKILL)
            if time.monotonic() > patience:
                process.kill()
                raise SandboxError(
                    f"ending sandbox {process.pid}: it was still there after {END_DEADLINE:g} s; "
                    "see what the system waits for"
                )
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK)
        code = process.returncode
        close_streams(process)
        if self.exited >= 0:
            os.close(self.exited)
            self.exited = -1
        self._leave()
        return code

    def _leave(self) -> None:
        """Let the kernel forget the group of the box."""
        if self._group is not None:
            self._num_kills = self._group.num_kills
            self._group.remove()
            self._group = None


def used_up(processes: list[int], inner: list[int], limits: Limits) -> Reason:
    """Return which of `limits` the `processes` of a box have passed; `inner` sees its `/tmp` and its network."""
    held = memory(processes) + sum(map(socket_memory, inner))
    if held > limits.memory_bytes:
        return "memory"
    return "files" if num_files(inner, limits) > limits.scratch_files else ""


def num_files(processes: Sequence[int], limits: Limits) -> int:
    """Return how many files are in the `/tmp` of `processes`; 0 where the system does not let us look."""
    for process in processes:
        with suppress(OSError):
            found = os.statvfs(f"/proc/{process}/root/tmp")
            if found.f_files and found.f_blocks * found.f_frsize <= limits.scratch_bytes + (1 << 20):
                return found.f_files - found.f_ffree
    return 0


def check_path(name: str) -> str:
    """Return the place in a box of the file that the caller calls `name`, below `/tmp`.

    Raises:
        UsageError: the name is empty or absolute, holds a NUL, or leads out of the folder.
    """
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name or len(name) > 1_000:
        raise UsageError(
            f"name of a file for the sandbox: got {name[:60]!r}; give a relative path without '..'"
        )
    return f"/tmp/{path}"


def check_files(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """Return `files` by their place in a box.

    Raises:
        UsageError: a name leads elsewhere, two name one place, or there are too many.
    """
    if len(files) > MAX_FILES:
        raise UsageError(f"files for the sandbox: got {len(files)}; give at most {MAX_FILES}")
    placed = {
        check_path(name): content.encode() if isinstance(content, str) else content
        for name, content in files.items()
    }
    if len(placed) < len(files):
        raise UsageError("files for the sandbox: got two names of one place; write each name one way")
    return placed


def _start_process(line: Sequence[str], handles: Sequence[int], stdin: int) -> subprocess.Popen[bytes]:
    """Start `line` with an empty environment; called in the thread that never ends."""
    return subprocess.Popen(
        line,
        env={},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=handles,
        bufsize=0,
        start_new_session=True,
    )
