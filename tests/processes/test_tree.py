"""What a tree of processes holds: its own memory, what it shares once, and what its sockets may hold in the kernel."""

import mmap
import os
import signal
import socket
from pathlib import Path

import pytest

from quintain.processes import tree
from quintain.processes.tree import SOCKET_BYTES, TCP_BYTES, memory, socket_memory


def child(held: mmap.mmap) -> int:
    """Return a process that has touched all of `held`, and waits."""
    done, tell = os.pipe()
    number = os.fork()
    if not number:
        for place in range(0, len(held), 4096):
            held[place] = 1
        os.write(tell, b"x")
        signal.pause()
        os._exit(0)
    assert os.read(done, 1) == b"x"
    os.close(done)
    os.close(tell)
    return number


def test_memory_that_several_map_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 32 << 20
    with mmap.mmap(-1, size) as held:
        numbers = [child(held), child(held)]
        try:
            each = [memory([number]) for number in numbers]
            assert min(each) > size, "shared memory is memory"
            assert memory(numbers) < sum(each) - size // 2, "and counts once"
            original = tree._numbers  # pyright: ignore[reportPrivateUsage]
            monkeypatch.setattr(
                tree, "_numbers", lambda file, names: {} if "smaps" in file else original(file, names)
            )
            assert memory(numbers) > 2 * size, (
                "where the system does not say what is shared, all of it counts"
            )
        finally:
            for number in numbers:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)


def test_sockets_count_as_what_they_can_hold() -> None:
    before = socket_memory(os.getpid())
    with socket.create_server(("127.0.0.1", 0)):
        one, other = socket.socketpair()
        with one, other:
            # Others of this network may come and go meanwhile.
            assert socket_memory(os.getpid()) >= 0
    assert before % SOCKET_BYTES == 0 and TCP_BYTES % SOCKET_BYTES == 0


def test_what_is_gone_or_cannot_be_read_holds_nothing(tmp_path: Path) -> None:
    assert memory([-1, 1 << 30]) == 0 and socket_memory(-1) == 0
    broken = tmp_path / "status"
    broken.write_text("RssAnon: many\n")
    assert tree._numbers(str(broken), (b"RssAnon",)) == {}  # pyright: ignore[reportPrivateUsage]
