"""What this process holds: threads, child processes and open files, so that a leak can be seen."""

import os
import threading

import psutil


def resources() -> dict[str, int]:
    """Return this process's numbers of threads, children and open files."""
    return {
        "threads": threading.active_count(),
        "processes": len(children()),
        "open files": psutil.Process().num_fds(),
    }


def num_cores() -> int:
    """Return how many processors this process may use; where the system does not say, how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def children() -> list[int]:
    """Return the processes whose parent is this one, those that are dead and not yet buried included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none at all: the many processes of others need not be looked at
        return []
    return [process.pid for process in psutil.Process().children()]
