"""The writer's lock of a run folder: an advisory `flock` that the kernel releases when its process dies.

``run.lock`` carries process id and host name for the message only. The kernel's lock decides, so a lock file that a
dead process left is no obstacle, and the file is never deleted.
"""

import errno
import fcntl
import json
import os
import socket
import stat
import time
import weakref
from pathlib import Path
from typing import Any, cast

from quintain.errors import StoreError
from quintain.store.files import PRIVATE
from quintain.types.json_text import load_json

LOCK_FILE = "run.lock"
_ATTEMPTS, _PAUSE = 5, 0.02
_held: "weakref.WeakSet[WriterLock]" = weakref.WeakSet()


class WriterLock:
    """The exclusive right to write in a folder, until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take the right in `folder`; raise `StoreError` naming process and host that have it."""
        self._descriptor = _acquire(folder)
        owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, owner.encode(), 0)
        _held.add(self)

    def release(self) -> None:
        """Give the right back; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        _held.discard(self)


def _forget_in_child() -> None:
    """Close inherited locks: a forked worker that outlives its parent must not keep the run locked."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_in_child)


def is_locked(folder: Path) -> bool:
    """Whether a living process writes in `folder`."""
    try:
        descriptor = _open_file(folder / LOCK_FILE, os.O_RDONLY)
    except (FileNotFoundError, StoreError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _acquire(folder: Path) -> int:
    """Return a locked descriptor; a look by `is_locked` blocks for an instant, hence the attempts."""
    file = folder / LOCK_FILE
    for _ in range(_ATTEMPTS):
        descriptor = _open_file(file, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            time.sleep(_PAUSE)
            continue
        if _is_still(file, descriptor):
            return descriptor
        os.close(descriptor)
    raise StoreError(
        f"writing in {folder}: got a run that {_owner(file)} is writing; "
        "wait until it ends or stop it, or choose another run name"
    )


def _open_file(file: Path, flags: int) -> int:
    """Open the lock `file`; a link in a folder that others made could lead to a file of the user's.

    Raises:
        StoreError: it is a link, a pipe or a device.
    """
    try:
        descriptor = os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
    raise StoreError(f"locking {file.parent}: got {file.name}, which is no plain file; take it away")


def _is_still(file: Path, descriptor: int) -> bool:
    """Whether `descriptor` is the file of that name: the folder may have been replaced meanwhile."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _owner(file: Path) -> str:
    try:
        owner = cast(dict[str, Any], load_json(file.read_bytes()))
        return f"process {int(owner['pid'])} on host {owner['host']!s}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
