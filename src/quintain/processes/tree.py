"""The processes below one process, as the kernel lists them: how much memory they hold, and their end.

The tree is found by parents, which every user may read. A process whose parent died belongs to the keeper of the
tree (the first process of a box, or `processes.keeper`), so that it is still found. The keeper of a worker runs under
any interpreter, without packages, so the list itself is read with the standard library.
"""

import os
import signal
from contextlib import suppress


def parents() -> dict[int, int]:
    """Return every process with its parent; those that are dead and not yet buried are left out."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    found[int(name)] = int(parent)
    return found


def below(root: int) -> list[int]:
    """Return the processes below `root`, parents before their children; `root` is not among them."""
    children: dict[int, list[int]] = {}
    for process, parent in parents().items():
        children.setdefault(parent, []).append(process)
    found = list(children.get(root, ()))
    for process in found:  # the list grows while it is read
        found.extend(children.get(process, ()))
    return found


def is_alone(process: int) -> bool:
    """Whether `process`, which stands still, has no child; in a namespace of its own it is the only one there then.

    Where the kernel does not list the children of a thread, it is not known to be.
    """
    try:
        threads = os.listdir(f"/proc/{process}/task")
        for thread in threads:
            with open(f"/proc/{process}/task/{thread}/children", "rb") as file:
                if file.read(1):
                    return False
    except OSError:
        return False
    return bool(threads)


def memory(processes: list[int]) -> int:
    """Return the bytes that `processes` hold for themselves; what they read from files is left out."""
    import psutil  # not above: the keeper of a worker comes without packages

    total = 0
    for process in processes:
        with suppress(psutil.Error, ValueError):
            held = psutil.Process(process).memory_info()
            total += max(0, held.rss - held.shared)
    return total


def send(processes: list[int], number: signal.Signals) -> None:
    """Send signal `number` to those of `processes` that are still there."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
