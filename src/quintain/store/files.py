"""Files that survive a crash: sync, atomic replacement, and errors that name the disk's state.

What has a final name is complete. Everything is built under a temporary name, synced and renamed.
"""

import errno
import hashlib
import os
import shutil
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from quintain.errors import MORE_DESCRIPTORS, NO_DESCRIPTOR, StoreError
from quintain.store import faults

_FULL_DISK = (
    "no space left",
    "storagefull",
    "os error 28",
    "os error 27",
    "file too large",
    "disk is full",
    "disk quota",
    "i/o error",
)
_NO_PLACE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG)
"""Errors of a path, which room on the disk does not help."""
PRIVATE = 0o600
"""Rights to the files of a run: prompts and answers are its owner's alone, as its weights are."""
CLOSED = 0o700
"""Rights to the folder of a run, which close it while libraries and programs write files of theirs into it."""
OTHERS = 0o077
"""Rights of everybody but the owner."""
_RESUME = "resume: what was committed before is intact"


def free_bytes(path: Path) -> int:
    """Return the bytes that are free on the disk of `path`, which need not exist."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


def can_write(folder: Path) -> bool:
    """Whether files can be made in `folder`: it may be forbidden, or on a disk that is only read."""
    return os.access(folder, os.W_OK)


def is_disk_trouble(error: BaseException) -> bool:
    """Whether `error` comes from the disk; writers of tensors wrap such errors in types of their own."""
    if isinstance(error, (OSError, sqlite3.Error)):
        return True
    return any(sign in str(error).lower() for sign in _FULL_DISK)


def has_no_descriptor(error: BaseException) -> bool:
    """Whether `error` means that no more files can be opened; SQLite calls that a file which cannot be opened."""
    if isinstance(error, OSError):
        return error.errno in NO_DESCRIPTOR
    if not (isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error)):
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as found:
        return found.errno in NO_DESCRIPTOR
    return False


def disk_error(asked: str, path: Path, error: BaseException, *, then: str = _RESUME) -> StoreError:
    """Return the `StoreError` for `error`, which happened while doing `asked` at `path`; `then` is what helps."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if has_no_descriptor(error):
        return StoreError(f"{asked} in {path}: got 'too many open files'; {MORE_DESCRIPTORS}, then {then}")
    if isinstance(error, OSError) and error.errno in _NO_PLACE:
        return StoreError(
            f"{asked} in {path}: got {reason!r}; give a folder that can be written to, then {then}"
        )
    return StoreError(
        f"{asked} in {path}: got {' '.join(reason.split())!r} with {free_bytes(path):,} bytes free; "
        f"make room or repair that disk, then {then}"
    )


def digest_of(file: Path) -> str:
    """Return the SHA-256 of the content of `file`."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync_file(file: Path) -> None:
    """Force the content of `file` to the disk."""
    faults.point("sync", file)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Force the entries of `folder` (names made, renamed, removed) to the disk."""
    sync_file(folder)


def rename(source: Path, target: Path) -> None:
    """Rename `source` to `target` and make the new name durable."""
    faults.point("rename", target)
    source.rename(target)
    sync_folder(target.parent)


def write_file(file: Path, content: bytes) -> None:
    """Write `content` to a new `file` and force it to the disk."""
    faults.point("write", file)
    with open(file, "wb", opener=_never_through_a_link) as stream:
        stream.write(content)
    sync_file(file)


def replace_file(file: Path, content: bytes) -> None:
    """Give `file` the new `content`; a crash leaves the old one or the new one."""
    temporary = file.with_name(f".{file.name}.writing")
    write_file(temporary, content)
    faults.point("replace", file)
    temporary.replace(file)
    sync_folder(file.parent)


def append_line(file: Path, line: str) -> None:
    """Append `line` to `file` with one write, so that a reader sees whole lines (not durable)."""
    faults.point("append", file)
    descriptor = _never_through_a_link(str(file), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def _never_through_a_link(file: str, flags: int) -> int:
    """Open `file`; a link in a folder that others made could lead anywhere, and is an error."""
    return os.open(file, flags | os.O_NOFOLLOW, PRIVATE)


def close_to_others(folder: Path) -> None:
    """Leave `folder` to its owner alone; links in it, and what is another user's, stay as they are."""
    _close(folder)
    for parent, folders, plain in os.walk(folder):
        for name in (*folders, *plain):
            _close(os.path.join(parent, name))


def _close(place: str | Path) -> None:
    with suppress(OSError):  # of another user, or on a disk that knows no rights
        mode = os.lstat(place).st_mode
        if mode & OTHERS and not stat.S_ISLNK(mode):
            os.chmod(place, stat.S_IMODE(mode) & ~OTHERS)


def remove_folder(folder: Path) -> None:
    """Delete `folder` with everything in it."""
    faults.point("remove", folder)
    shutil.rmtree(folder)
