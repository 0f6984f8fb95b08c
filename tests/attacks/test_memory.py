"""Memory of a box by every way there is, measured on the host from outside while the box takes what it can."""

import threading
import time
from pathlib import Path

import pytest
from tests.attacks.attack import Scene
from tests.attacks.box import inside, no_filter
from tests.attacks.resources import MEMFDS, SEGMENTS, SHARED, SMALL, SOCKETS, TREE, unwatched

from quintain.processes.tree import below, socket_memory
from quintain.safety import box

ROOM = 96 << 20
"""What may be held beyond the limit until a box is looked at, and by others on the machine meanwhile."""
PIPES = (
    "import fcntl\nheld, sent = [], 0\ntry:\n    for _ in range(100):\n        one, other = os.pipe()\n"
    "        held.append(one)\n        os.set_blocking(other, False)\n        try: fcntl.fcntl(other, 1031, 1 << 20)\n"
    "        except OSError: pass\n        try:\n            while True: sent += os.write(other, bytes(4096))\n"
    "        except BlockingIOError: pass\n        os.close(other)\nexcept OSError: pass\n"
    "time.sleep(1.0)\nraise OSError(f'{sent} bytes')"
)
MAPPED = (
    "import mmap\nfor n in range(8):\n    file = os.open(f'/tmp/{n}', os.O_RDWR | os.O_CREAT)\n"
    "    os.posix_fallocate(file, 0, 24 << 20)\n    held = mmap.mmap(file, 24 << 20)\n"
    "    for place in range(0, 24 << 20, 4096): held[place] = 1\ntime.sleep(1.0)\nreturn 'held 192 MiB'"
)


def shared_memory() -> int:
    """Return the bytes of files that live in memory, segments and shared mappings on this machine."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["Shmem"].split()[0]) << 10


def settled() -> int:
    """Return the shared memory of this machine once what was let go before is gone, which the kernel does later."""
    for _ in range(100):
        before = shared_memory()
        time.sleep(0.1)
        if shared_memory() == before:
            break
    return shared_memory()


def most_held(body: str, scene: Scene) -> tuple[int, int, str]:
    """Return how much shared memory, and memory of sockets, was held at most while a box does `body`; and its words."""
    before, over = settled(), threading.Event()
    found = [0, 0]

    def look() -> None:
        while not over.is_set():
            found[0] = max(found[0], shared_memory() - before)
            for root in started:
                found[1] = max([found[1], *map(socket_memory, below(root)[-1:])])
            time.sleep(0.005)

    started: list[int] = []
    start = box.Box.__init__

    def note(self: box.Box, *arguments: object, **named: object) -> None:
        start(self, *arguments, **named)  # type: ignore[arg-type] # pyright: ignore
        started.append(self.process.pid)

    scene.patch.setattr(box.Box, "__init__", note)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        said = inside(body, SMALL)(scene).said
    finally:
        over.set()
        thread.join()
        scene.patch.setattr(box.Box, "__init__", start)
    return found[0], found[1], said


@pytest.mark.parametrize(
    "body",
    [MEMFDS, SEGMENTS, SHARED, TREE, MAPPED],
    ids=["memfd", "segments", "shared", "own", "mapped files"],
)
def test_no_way_to_memory_goes_past_the_limit(body: str, scene: Scene) -> None:
    held, _, said = most_held(body, scene)
    assert held < SMALL.memory_bytes + ROOM, said
    assert "held" not in said


def test_sockets_hold_no_more_than_the_limit(scene: Scene) -> None:
    _, held, said = most_held(SOCKETS, scene)
    assert said == "killed: memory" and held < SMALL.memory_bytes + 600 * 2 * (256 << 10)


def test_pipes_hold_what_the_kernel_gives_a_user(scene: Scene) -> None:
    _, _, said = most_held(PIPES, scene)
    num_bytes = int(said.split(": ")[1].split()[0]) if "bytes" in said else 0
    soft = int(Path("/proc/sys/fs/pipe-user-pages-soft").read_text()) * 4096
    assert num_bytes <= soft + (1 << 20), said


@pytest.mark.parametrize(
    ("body", "weaken"), [(MEMFDS, no_filter), (SEGMENTS, no_filter), (SHARED, unwatched)]
)
def test_what_is_measured_sees_a_weakened_build(body: str, weaken: object, scene: Scene) -> None:
    assert callable(weaken)
    weaken(scene)
    held, _, said = most_held(body, scene)
    assert held > 120 << 20 and "held" in said, said
