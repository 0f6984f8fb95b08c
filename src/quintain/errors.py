"""The error tree: every error says what was asked, what came and what to do.

Each class carries the exit code that the command line ends with; ``EXIT_CODES`` is the documented table. A
failure *inside an episode* is data, not an exception (`quintain.types.Failure`): these errors are for what
must stop a command.
"""

import errno
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches
from typing import ClassVar

PROBLEM_OF_THE_DISK = frozenset(
    [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO]
)
"""Errors of the system that mean a disk which is full, forbidden or broken."""
NO_DESCRIPTOR = frozenset([errno.EMFILE, errno.ENFILE])
"""Errors of the system that mean too many open files."""
MORE_DESCRIPTORS = "allow more open files (ulimit -n 4096)"
"""What helps then."""


class QuintainError(Exception):
    """Root of the tree; its message is one line a user can act on."""

    exit_code: ClassVar[int] = 1
    """Process exit status when the error reaches the command line."""


class UsageError(QuintainError, ValueError):
    """A name, flag or value on the command line (or in a call) that does not exist or does not fit."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file with an unknown key, a wrong type or values that contradict each other."""


class EnvironmentFault(QuintainError):
    """An environment broke its contract: raised, hung, returned NaN or the wrong type."""

    exit_code = 3


class ModelError(QuintainError):
    """A model folder or tokenizer that is missing, broken or does not fit."""

    exit_code = 4


class DataError(QuintainError, ValueError):
    """Data that is empty, malformed or does not fit the method."""

    exit_code = 5


class StoreError(QuintainError, OSError):
    """A run folder that cannot be created, locked, read or written (a full disk, for example)."""

    exit_code = 6


class EngineFault(QuintainError):
    """An engine that cannot serve: no reply, a broken reply, wrong weights."""

    exit_code = 7


class InvariantError(QuintainError, AssertionError):
    """An always-on check failed: training on would teach the model something that was not sampled."""

    exit_code = 8


class FailureRateError(QuintainError):
    """More episodes failed for reasons outside the policy than the run allows."""

    exit_code = 9


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust has given up; such errors are no `Exception`, so nobody else catches them."""
    return type(error).__name__ == "PanicException"


def install_command(extra: str) -> str:
    """Return what installs the optional packages of `extra`: from a clone, since no registry has quintain yet."""
    return f'in a clone of quintain: pip install -e ".[{extra}]"'


class MissingExtra(QuintainError, ImportError):
    """An optional package is not installed; the message carries the install command."""

    exit_code = 10

    @classmethod
    def for_package(cls, package: str, extra: str, feature: str) -> "MissingExtra":
        """Return the error for `feature`, which needs `package` from the extra `extra`."""
        return cls(f"{feature} needs the package {package}: it is not installed; {install_command(extra)}")


class SandboxError(QuintainError):
    """Code cannot be isolated here: bubblewrap is missing, or the system does not let it work."""

    exit_code = 11


class MemoryShortage(QuintainError, MemoryError):
    """What was asked for does not fit into the memory of a device or of the machine."""

    exit_code = 12


INTERRUPTED_EXIT_CODE = 130

EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "an error inside quintain (please report it)",
    2: "unknown or contradictory command, flag, name or configuration",
    3: "the environment broke its contract",
    4: "the model or tokenizer cannot be used",
    5: "the data cannot be used",
    6: "the run folder cannot be written or read",
    7: "the engine cannot serve",
    8: "an always-on check stopped the run",
    9: "too many episodes failed",
    10: "an optional package is missing",
    11: "code cannot be isolated on this machine",
    12: "what was asked for does not fit into memory",
    INTERRUPTED_EXIT_CODE: "interrupted; a checkpoint was saved where a run was training",
}


SHORTAGE_SIGNS = ("out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED")
"""What torch's errors say where memory was asked for in vain, in words of the device."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error`, of Python or of torch, says that there is no more memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SHORTAGE_SIGNS)


@contextmanager
def name_shortage(what: str, todo: str) -> Generator[None]:
    """Raise a `MemoryShortage` for `what` where memory runs out meanwhile: a line that ends with what `todo`.

    Raises:
        MemoryShortage: memory ran out.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, QuintainError) or not is_out_of_memory(error):
            raise
        said = " ".join(str(error).split()).partition(". ")[0][:200] or type(error).__name__
        asked = re.search(r"[Tt]ried to allocate [\d.]+ \w+|allocate \d+ bytes", str(error))
        reason = "no more memory" + (f" ({asked[0][0].lower()}{asked[0][1:]})" if asked else f" ({said})")
        raise MemoryShortage(f"{what}: got {reason}; {todo}") from error


def find_error_class(name: object) -> type[QuintainError] | None:
    """Return the class of this tree that is called `name`, as another process told it; None if there is none."""
    kind = globals().get(str(name))
    return kind if isinstance(kind, type) and issubclass(kind, QuintainError) else None


def similar_file(name: str, files: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest of `files`, compared without what their names end in; else ''."""
    stems = {file.rpartition(".")[0] or file: file for file in sorted(files)}
    near = get_close_matches(name.rpartition(".")[0] or name, stems, n=1, cutoff=0.7)
    return f"did you mean {stems[near[0]]!r}?" if near else ""


def suggestion(name: str, options: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest of `options`, or the list of them when none is near.

    Example: ``suggestion("grop", ["grpo", "ppo"])`` is ``"did you mean 'grpo'?"``.
    """
    choices = sorted(options)
    near = get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"choose from {', '.join(choices)}" if choices else "there is nothing to choose from"
