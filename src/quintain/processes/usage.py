"""What this process holds: threads, child processes and open files, so that a leak can be seen."""

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path


def resources() -> dict[str, int]:
    """Return this process's numbers of threads, children and open files, as far as the system tells."""
    counts = {"threads": threading.active_count()}
    if sys.platform == "linux":
        counts["processes"] = sum(1 for _ in children())
        counts["open files"] = len(os.listdir("/proc/self/fd"))
    return counts


def children() -> Iterable[int]:
    """Yield the processes whose parent is this one; none where the system does not tell."""
    if sys.platform != "linux":
        return
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none at all: the many processes of others need not be looked at
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                yield int(entry.name)
