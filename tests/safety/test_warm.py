"""Interpreters that wait: who is used again, what becomes of those that die, and when a box is started as ever."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from quintain.errors import SandboxError
from quintain.processes.tree import below, send
from quintain.rollout.leaks import Leaks
from quintain.rollout.stepper import Stepper
from quintain.safety import warm
from quintain.safety.box import Box
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess
from quintain.safety.warm import Nursery, Shelf, WarmBox, worker_box

pytestmark = pytest.mark.usefixtures("isolation")
LIMITS = Limits(seconds=30.0)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """A shelf of its own, which keeps none to spare."""
    assert warm.works()
    found = Shelf(spare=0)
    monkeypatch.setattr(warm, "_shelf", found)
    yield found
    for process in found.processes():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def worker(limits: Limits = LIMITS) -> WarmBox:
    found = worker_box(limits, {})
    assert found is not None
    return found


def test_an_interpreter_serves_one_episode_at_a_time_and_then_the_next(shelf: Shelf) -> None:
    first, second = worker(), worker()
    assert len(shelf.processes()) == 2 and first.root != second.root
    first.end()
    first.end()
    third = worker(Limits(seconds=1.0, output_bytes=9))
    assert len(shelf.processes()) == 2, "what the kernel does not hold it to may differ"
    assert third.limits.output_bytes == 9
    other = worker(Limits(processes=5))
    assert len(shelf.processes()) == 3, "what it does may not"
    for box in (second, third, other):
        box.end()


def test_an_order_that_no_worker_took_is_not_the_next_ones(shelf: Shelf) -> None:
    for _ in range(20):
        worker().end()
    with PythonProcess(LIMITS, files={"a": "7"}) as python:
        assert python.run("open('a').read()").output == "'7'\n" and isinstance(python.running, WarmBox)
    assert len(shelf.processes()) == 1


def test_whoever_comes_back_finds_one_that_forked_ahead(shelf: Shelf) -> None:
    shelf.spare = 1
    first = worker()
    first.end()
    assert len(shelf.processes()) == 1, "who needs one episode needs one interpreter"
    second = worker()
    assert len(shelf.processes()) == 2 and second.root != first.root
    second.end()
    third = worker()
    third.end()
    assert len(shelf.processes()) == 2, "they take turns"


def test_a_worker_is_shut_in_before_it_is_needed_and_knows_nothing_of_its_order_until_then(
    shelf: Shelf,
) -> None:
    nursery = shelf.take(LIMITS)
    (worker_ahead,) = _workers(nursery)
    status = Path(f"/proc/{worker_ahead}/status").read_text()
    assert "\nSeccomp:\t2\n" in status and "\nCapEff:\t0000000000000000\n" in status
    box = nursery.fork({"/tmp/a": b"7"})
    assert box.first == [worker_ahead]
    box.end()


def _workers(nursery: Nursery) -> list[int]:
    """Return the worker that waits, once it is shut in."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        for last in below(nursery.process)[-1:]:
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended since it was listed
                if "\nSeccomp:\t2\n" in Path(f"/proc/{last}/status").read_text():
                    return [last]
        time.sleep(0.005)
    return []


def _kill_all_of(shelf: Shelf) -> None:
    """Kill what runs in the boxes of `shelf`, and wait until it is gone: one may die of another's death."""
    deadline = time.monotonic() + 30.0
    while (left := [inner for process in shelf.processes() for inner in below(process)]) and (
        time.monotonic() < deadline
    ):
        send(left, signal.SIGKILL)
        time.sleep(0.005)
    assert not left


def test_of_too_many_that_wait_the_oldest_ends(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "MAX_IDLE", 1)
    boxes = [worker(), worker()]
    processes = shelf.processes()
    for box in boxes:
        box.end()
    (left,) = shelf.processes()
    (gone,) = processes - {left}
    assert not os.path.exists(f"/proc/{gone}") or not below(gone)


def test_a_worker_that_dies_is_told_by_its_reason_and_the_next_is_a_new_one(shelf: Shelf) -> None:
    with PythonProcess(LIMITS) as python:
        assert python.run("1").output == "1\n"
        box = python.running
        assert isinstance(box, WarmBox)
        os.kill(box.first[0], signal.SIGKILL)
        assert python.run("2").reason == "exited"
        assert python.run("3").output == "3\n" and python.num_starts == 2
    assert len(shelf.processes()) == 1


def test_an_interpreter_that_died_costs_an_episode_nothing(shelf: Shelf) -> None:
    worker().end()
    _kill_all_of(shelf)
    with PythonProcess(LIMITS) as python:
        assert python.run("1").output == "1\n" and isinstance(python.running, Box)
    with PythonProcess(LIMITS) as python:
        assert python.run("1").output == "1\n" and isinstance(python.running, WarmBox)


def test_where_interpreters_cannot_wait_a_box_is_started_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    original = warm.source
    mute = {warm.FORKER: b"import sys; sys.exit(1)"}
    monkeypatch.setattr(warm, "source", lambda place: mute.get(place) or original(place))
    monkeypatch.setattr(warm, "_shelf", Shelf())
    with pytest.raises(SandboxError, match="an interpreter in a sandbox: got 'nothing' for ready"):
        Nursery(LIMITS)
    warm.works.cache_clear()
    try:
        assert not warm.works() and worker_box(LIMITS, {}) is None
        with PythonProcess(LIMITS) as python:
            assert python.run("x = 1\nx").output == "1\n" and isinstance(python.running, Box)
            assert python.run("import os; os.fork() or os._exit(0)\nx").output == "1\n"
            assert python.run("import os; os._exit(0)").reason == "exited"
            assert python.run("1").output == "1\n" and python.num_starts == 2
    finally:
        warm.works.cache_clear()


def test_a_step_that_fails_says_which(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = warm.source(warm.FORKER).replace(b'"tmpfs", "/tmp"', b'"tmpfs", "/nowhere"')
    original = warm.source
    monkeypatch.setattr(warm, "source", lambda place: broken if place == warm.FORKER else original(place))
    with pytest.raises(SandboxError, match=r"mounting /nowhere: No such file or directory.* for begun"):
        Nursery(LIMITS).fork({})


def test_its_files_are_there_and_the_folder_is_limited(shelf: Shelf) -> None:
    with PythonProcess(Limits(seconds=30.0, scratch_bytes=1 << 20), files={"a/b.txt": "7"}) as python:
        assert python.run("open('a/b.txt').read(), oct(__import__('os').stat('a/b.txt').st_mode)").output == (
            "('7', '0o100644')\n"
        )
        assert "No space left" in python.run("open('big', 'wb').write(bytes(2 << 20))").error
        assert isinstance(python.running, WarmBox)


def test_interpreters_that_wait_are_no_leak(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    leaks = Leaks(dict, Stepper(timeout=1.0))
    worker().end()
    leaks.report()
    assert not caplog.records
