"""Memory that was freed, given back to the system: an allocator keeps it for later, run after run a little more.

After a run of training the C library of Linux holds hundreds of megabytes that nobody uses, in pieces that the tensors
of the next run do not fit into.
"""

import ctypes
import gc
from functools import cache
from typing import Any


def return_freed_memory() -> bool:
    """Give freed memory back to the system; False where the C library cannot, or has none to give back."""
    gc.collect()
    return trim_heap()


def trim_heap() -> bool:
    """Give back what was freed already; False where the C library cannot, or has none to give back."""
    trim = _trim()
    return trim is not None and bool(trim(ctypes.c_size_t(0)))


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
