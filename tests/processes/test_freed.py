"""Memory that was freed goes back to the system."""

import ctypes
from pathlib import Path

import pytest

from quintain.processes import freed
from quintain.processes.freed import return_freed_memory


def resident() -> int:
    """Return the pages that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library cannot give memory back"
)
@pytest.mark.slow
def test_what_was_freed_goes_back_to_the_system() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [library.malloc(ctypes.c_size_t(100_000)) for _ in range(2_000)]
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    for block in blocks[:-1]:  # the last one, which is above them, keeps them from being given back at once
        library.free(block)
    before = resident()
    assert return_freed_memory()
    assert before - resident() > 0.5 * 2_000 * 100_000 / 4096
    library.free(blocks[-1])


def test_where_the_c_library_cannot_nothing_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed, "_trim", lambda: None)
    assert not return_freed_memory()
