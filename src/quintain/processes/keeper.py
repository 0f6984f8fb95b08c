"""A process that outlives the one that works, and then ends all that is left of it.

It adopts every process whose parent dies, so that none escapes by forking twice, and buries the dead. It ends the tree
when the working process ends, when it is told to (SIGTERM), and when its own standard input has no writer any more,
which is so when the process that started it is gone. It needs the standard library only, and no thread.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import tempfile
from typing import NoReturn

from quintain.processes.tree import below, send

SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36
"""Numbers of prctl(2)."""
FOLDER = "quintain-worker-"
"""How the names of folders for temporary files begin."""
ROUNDS = 1_000


def fork_keeper() -> None:
    """Fork: this returns in a new process; the old one becomes its keeper and ends when everything has ended."""
    waking, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _ignore_signal)
    _control(SET_CHILD_SUBREAPER, 1)
    keeper = os.getpid()
    worker = os.fork()
    if worker:
        _keep(worker, waking)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.close(waking)
    os.close(wakes)
    os.setsid()
    _control(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)


def _keep(worker: int, waking: int) -> NoReturn:
    """Wait for the end of process `worker`, a signal or the loss of our starter; then end the tree and leave."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)  # the pipes of replies and output end with the worker
    os.dup2(nothing, 2)
    waiting = select.poll()
    waiting.register(0, 0)  # without a mask it tells only of the loss of the other end
    waiting.register(waking, select.POLLIN)
    code = None
    while code is None:
        ready = dict(waiting.poll())
        code = _bury(worker)
        if 0 in ready or (waking in ready and signal.SIGTERM in os.read(waking, 1 << 16)):
            break
    for _ in range(ROUNDS):
        send(below(os.getpid()), signal.SIGKILL)
        found = _bury(worker)
        code = found if code is None else code
        if not _has_children():
            break
        waiting.poll(10)
        with contextlib.suppress(BlockingIOError):
            os.read(waking, 1 << 16)
    folder = tempfile.gettempdir()
    if os.path.basename(folder).startswith(FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1 if code is None else code)


def _ignore_signal(_number: int, _frame: object) -> None:
    """Do nothing: what counts is that the signal wakes us."""


def _control(option: int, value: int) -> None:
    """Set `option` of this process (Linux)."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _bury(worker: int) -> int | None:
    """Take leave of the dead; return the exit code of `worker` if it is among them, 128 + n after signal n."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            number, status = os.waitpid(-1, os.WNOHANG)
            if not number:
                break
            if number == worker:
                found = os.waitstatus_to_exitcode(status)
                code = found if found >= 0 else 128 - found
    return code


def _has_children() -> bool:
    """Whether a process is left that is ours, dead or alive."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
