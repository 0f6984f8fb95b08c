"""What takes too long or grows too much is interrupted, and only that."""

import resource
import threading
import time

import pytest

from quintain.text import bounds
from quintain.text.bounds import TemplateBoundError, bounded


def test_what_does_not_end_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.1)
    with pytest.raises(TemplateBoundError), bounded():
        while True:
            str(1)


def test_what_grows_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "GROWTH_BYTES", 16 << 20)
    held: list[bytes] = []
    with pytest.raises(TemplateBoundError), bounded():
        while True:
            held.append(b"x" * (1 << 16))


def test_memory_is_refused_by_the_kernel_where_it_is_held() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError), bounded(holds_memory=True):
        bytes(1 << 40)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_ends_is_left_alone_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.0)
    with bounded():
        before = threading.active_count()
    for _ in range(50):
        with bounded():
            str(1)
    assert threading.active_count() == before


def test_the_thread_sleeps_and_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.05)
    monkeypatch.setattr(bounds, "QUIET_TICKS", 0)
    for _ in range(2):
        deadline = time.monotonic() + 20
        while bounds._watcher._wake.is_set() and time.monotonic() < deadline:  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.01)
        with pytest.raises(TemplateBoundError), bounded():
            while True:
                str(1)


def test_where_the_system_does_not_say_memory_is_not_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.1)
    monkeypatch.setattr(bounds, "GROWTH_BYTES", 0)
    monkeypatch.setattr(bounds.sys, "platform", "plan9")
    with bounded(holds_memory=True):
        held = bytes(1 << 22)
    with pytest.raises(TemplateBoundError), bounded():
        while True:
            len(held)
