import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from quintain.errors import StoreError
from quintain.store import lock as locking
from quintain.store.lock import LOCK_FILE, WriterLock, is_locked

HOLD = "import sys; from pathlib import Path; from quintain.store.lock import WriterLock; " + (
    "held = WriterLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


def holder(folder: Path) -> subprocess.Popen[bytes]:
    source = str(Path(locking.__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        env={"PYTHONPATH": source},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    return process


def test_the_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    first = WriterLock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(
        StoreError, match=f"process {os.getpid()} on host {socket.gethostname()} is writing"
    ) as caught:
        WriterLock(tmp_path)
    assert str(tmp_path) in str(caught.value) and "choose another run name" in str(caught.value)
    first.release()
    first.release()
    assert not is_locked(tmp_path)
    WriterLock(tmp_path).release()


def test_a_folder_that_nobody_wrote_is_free(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    process = holder(tmp_path)
    with pytest.raises(StoreError, match=f"process {process.pid} on host"):
        WriterLock(tmp_path)
    process.kill()
    process.communicate(timeout=30)
    assert (tmp_path / LOCK_FILE).stat().st_size > 0
    WriterLock(tmp_path).release()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"pid": "x"}', b"null", b'{"pid": 1}'])
def test_a_broken_lock_file_still_locks(tmp_path: Path, content: bytes) -> None:
    held = WriterLock(tmp_path)
    (tmp_path / LOCK_FILE).write_bytes(content)
    with pytest.raises(StoreError, match="another process is writing"):
        WriterLock(tmp_path)
    held.release()


def test_one_of_many_wins_each_race(tmp_path: Path) -> None:
    for _ in range(10):
        won: list[WriterLock] = []
        barrier = threading.Barrier(3)

        def race(won: list[WriterLock] = won, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                won.append(WriterLock(tmp_path))
            except StoreError:
                return

        threads = [threading.Thread(target=race) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        won[0].release()


@pytest.mark.parametrize("put_back", [True, False])
def test_a_folder_replaced_while_locking_is_locked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put_back: bool
) -> None:
    real: Callable[[int, int], None] = locking.fcntl.flock
    file = tmp_path / LOCK_FILE
    swaps = iter([True])

    def swapping(descriptor: int, flags: int) -> None:
        real(descriptor, flags)
        if next(swaps, False):
            file.unlink()
            if put_back:
                file.touch()

    monkeypatch.setattr(locking.fcntl, "flock", swapping)
    held = WriterLock(tmp_path)
    assert is_locked(tmp_path)
    held.release()


def test_a_forked_child_gives_up_its_copy_without_freeing_the_parents(tmp_path: Path) -> None:
    held = WriterLock(tmp_path)
    inherited = os.dup(held._descriptor)  # pyright: ignore[reportPrivateUsage]
    locking._forget_in_child()  # pyright: ignore[reportPrivateUsage]
    assert is_locked(tmp_path)
    os.close(inherited)
    assert not is_locked(tmp_path)
