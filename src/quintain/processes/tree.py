"""The processes below one process, as the kernel lists them: how much memory they hold, and their end.

The tree is found by parents, which every user may read. A process whose parent died belongs to the keeper of the
tree (the first process of a box, or `processes.keeper`), so that it is still found. The keeper of a worker runs under
any interpreter, without packages, so the list itself is read with the standard library.
"""

import os
import signal
from collections.abc import Collection
from contextlib import suppress

SOCKET_BYTES, TCP_BYTES = 256 << 10, 4 << 20
"""What a socket counts for, and one of TCP besides, whose buffers grow."""


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
    """Return the bytes that `processes` hold for themselves, shared memory among them counted once where that is known.

    What they read from files is left out, and what was swapped out is not.
    """
    own, shared = 0, dict[int, int]()
    for process in processes:
        found = _numbers(f"/proc/{process}/status", (b"RssAnon", b"VmSwap", b"RssShmem"))
        own += found.get(b"RssAnon", 0) + found.get(b"VmSwap", 0)
        if held := found.get(b"RssShmem", 0):
            shared[process] = held
    if len(shared) > 1:  # of what several map, each has its part: where the system does not say it, all of it
        for process in shared:
            part = _numbers(f"/proc/{process}/smaps_rollup", (b"Pss_Shmem",))
            shared[process] = part.get(b"Pss_Shmem", shared[process])
    return own + sum(shared.values())


def socket_memory(process: int) -> int:
    """Return the bytes that the sockets in the network of `process` may hold in the kernel, which no process maps.

    A socket counts as what its buffers can hold, since what they do hold is not told.
    """
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{process}/net/sockstat", "rb") as file:
        rows = {line.split()[0]: line.split() for line in file if line.strip()}
        num_tcp = int(rows[b"TCP:"][2])
        return int(rows[b"sockets:"][2]) * SOCKET_BYTES + num_tcp * TCP_BYTES
    return 0


def _numbers(file: str, names: Collection[bytes]) -> dict[bytes, int]:
    """Return those of `names` that `file` of the kernel gives in kilobytes, in bytes; nothing where it is gone."""
    found: dict[bytes, int] = {}
    with suppress(OSError, ValueError, IndexError), open(file, "rb") as lines:
        for line in lines:
            name, _, rest = line.partition(b":")
            if name in names:
                found[name] = int(rest.split()[0]) << 10
    return found


def send(processes: list[int], number: signal.Signals) -> None:
    """Send signal `number` to those of `processes` that are still there."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
