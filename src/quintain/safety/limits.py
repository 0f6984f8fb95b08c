"""What a box may use, and what becomes of a command that was run in one.

The limits hold for the whole tree of processes in the box, not for each of them. A command that was killed says why,
in one of the words of `Reason`.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.errors import UsageError

MEBIBYTE = 1 << 20
Reason = Literal["", "time", "memory", "files", "output", "processes", "exited", "protocol"]
"""Why a box was ended: the limit that was passed, `exited` (the process was gone) or `protocol` (what it said
could not be read); empty where it ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a box may use: ``Limits(seconds=2.0, memory_bytes=64 << 20)``.

    A single process is held to `memory_bytes` of address space by the kernel; the sum over the tree is looked
    at every few hundredths of a second, so that it may be passed for as long as that.
    """

    seconds: float = 10.0
    """Time by the clock; of one cell in a `PythonProcess`."""
    memory_bytes: int = 512 * MEBIBYTE
    """Memory of all processes together, the scratch space not counted."""
    processes: int = 32
    """Processes and threads."""
    output_bytes: int = MEBIBYTE
    """Output that is read before the box is killed; of one cell in a `PythonProcess`."""
    scratch_bytes: int = 32 * MEBIBYTE
    """Size of the writable folder `/tmp`."""
    scratch_files: int = 2_000
    """Files and folders in `/tmp`."""

    def __post_init__(self) -> None:
        """Check that there is room for a command.

        Raises:
            UsageError: a limit is not positive, or leaves less memory than an interpreter needs.
        """
        small = {
            name: getattr(self, name)
            for name in ("seconds", "processes", "output_bytes", "scratch_bytes", "scratch_files")
            if not getattr(self, name) > 0
        }
        if small or self.memory_bytes < 48 * MEBIBYTE:
            raise UsageError(
                f"limits of a sandbox: got {small or f'memory_bytes={self.memory_bytes}'}; "
                "give positive numbers, and at least 48 MiB of memory"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What became of a command: ``Finished(stdout="2", stderr="", exit_code=0)``."""

    stdout: str
    stderr: str
    exit_code: int | None
    """None where the command was killed; 128 + n where signal n ended it from within."""
    was_killed: bool = False
    reason: Reason = ""
