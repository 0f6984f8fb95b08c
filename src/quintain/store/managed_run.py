"""Who looks after the folder of a run while it is written, and what becomes of it when that fails.

A new run that fails before it holds anything to continue from is taken away again; any other stays, and the error says
how to go on. A full disk is an error of the store, whoever met it.
"""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from quintain.errors import (
    MORE_DESCRIPTORS,
    NO_DESCRIPTOR,
    PROBLEM_OF_THE_DISK,
    DataError,
    QuintainError,
    StoreError,
    UsageError,
)
from quintain.store.files import disk_error, has_no_descriptor, is_disk_trouble
from quintain.store.run import Run
from quintain.types.terminal import write_command


@contextmanager
def looked_after(run: Run, *, start: str | None, is_new: bool, is_continued: bool = True) -> Generator[Run]:
    """Yield `run` and close it; `start` is its folder that makes it worth keeping, None if none does.

    One that is not to be `is_continued` is kept as it is.

    Raises:
        StoreError: the disk is full or cannot be written.
        QuintainError: what ended the block, with the way to continue.
    """
    folder = run.folder
    try:
        with run:
            yield run
    except Exception as error:
        has_begun = (
            start is not None
            and (folder / start).exists()
            and not is_hopeless(error, run, is_continued=is_continued)
        )
        is_empty = is_new and not has_begun
        if is_empty:
            shutil.rmtree(folder, ignore_errors=True)
        last = told(error, folder, is_gone=is_empty, is_continued=is_continued)
        if last is error:
            raise
        raise last from error


def is_hopeless(error: Exception, run: Run, *, is_continued: bool) -> bool:
    """Whether what ended `run` before its first step is in its settings or data: to continue it would end the same.

    One that is not to be `is_continued` is there for its episodes: with one of them it is not hopeless.
    """
    if not isinstance(error, DataError | UsageError) or run.next_step > 0:
        return False
    if is_continued:
        return True
    with Run.open(run.folder, writable=False) as again:
        return next(again.read_rows(), None) is None


def told(error: Exception, folder: Path, *, is_gone: bool, is_continued: bool = True) -> Exception:
    """Return `error`, with what became of the run in `folder`."""
    if is_of_the_disk(error):
        if is_gone:
            advice = MORE_DESCRIPTORS if has_no_descriptor(error.__cause__ or error) else "make room"
            return StoreError(
                f"starting the run {folder}: got {reason(error)}; {advice}, then start it again"
            )
        found = error if isinstance(error, StoreError) else disk_error("writing the run", folder, error)
        return StoreError(f"{found}{way_on(folder, is_continued)}")
    if not isinstance(error, QuintainError) or is_gone:
        return error
    return type(error)(f"{error}{way_on(folder, is_continued)}")


def way_on(folder: Path, is_continued: bool) -> str:
    """Return how the run in `folder` is continued, or where what it holds is kept."""
    command = write_command("quintain", "resume", folder)
    return f" (the run is kept: `{command}`)" if is_continued else f" (it is kept in {folder})"


def is_of_the_disk(error: BaseException) -> bool:
    """Whether `error` comes from a disk that is full, forbidden or broken."""
    if isinstance(error, StoreError):
        return error.__cause__ is not None and is_disk_trouble(error.__cause__)
    if isinstance(error, OSError):
        return error.errno in PROBLEM_OF_THE_DISK | NO_DESCRIPTOR
    return not isinstance(error, QuintainError) and is_disk_trouble(error)


def reason(error: BaseException) -> str:
    """Return what the disk said, in words."""
    first = error.__cause__ or error
    return repr(first.strerror if isinstance(first, OSError) and first.strerror else str(first))
