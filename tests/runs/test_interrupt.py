"""Signals end a run between two steps; a second one ends it at once, however busy the process is."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from quintain.runs.interrupt import SIGNALS, Interruption

FOREVER = 60.0
"""Seconds after which a test has failed."""


@pytest.fixture(autouse=True)
def _signals_are_given_back() -> object:  # pyright: ignore[reportUnusedFunction]
    before = [signal.getsignal(each) for each in SIGNALS]
    yield
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1


def never() -> bool:
    return False


def wait_for(condition: Callable[[], bool]) -> None:
    """Let the main thread go round until `condition` holds."""
    deadline = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def status_of(work: Callable[[], None]) -> int:
    """Return the exit status of a fork that does `work`."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    with Interruption() as interruption:
        interruption.defer(never)
        assert not interruption.is_asked
        signal.raise_signal(number)
        assert interruption.is_asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert not interruption.is_broken_off


@pytest.mark.parametrize("number", SIGNALS)
def test_while_a_run_is_set_up_the_first_signal_ends_and_is_not_forgotten_if_it_was_swallowed(
    number: signal.Signals,
) -> None:
    with Interruption() as interruption:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        interruption.defer(never)
        assert interruption.is_asked


def test_other_threads_leave_the_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def enter() -> None:
        with Interruption():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_process_that_does_not_end_after_the_second_signal_is_left() -> None:
    def stubborn() -> None:
        with Interruption(grace=0.1) as interruption:
            interruption.defer(never)
            signal.raise_signal(signal.SIGTERM)
            while True:
                try:
                    signal.raise_signal(signal.SIGINT)
                    time.sleep(FOREVER)
                except KeyboardInterrupt:
                    continue

    started = time.monotonic()
    assert status_of(stubborn) == 130
    assert time.monotonic() - started < FOREVER / 2


def test_a_step_is_broken_off_after_a_while_but_never_while_something_would_be_torn() -> None:
    asked: list[bool] = []
    may_break = threading.Event()

    def answer() -> bool:
        asked.append(threading.current_thread() is threading.main_thread())
        return may_break.is_set()

    with Interruption(patience=0.05) as interruption:
        interruption.defer(answer)
        signal.raise_signal(signal.SIGTERM)
        wait_for(lambda: len(asked) > 2)
        assert not any(asked), "until then only the thread asks"
        may_break.set()
        with pytest.raises(KeyboardInterrupt):
            wait_for(lambda: False)
        assert interruption.is_broken_off and asked[-1], "and the main thread once more"


def test_an_update_that_begins_at_the_last_moment_is_not_broken_off() -> None:
    refused: list[int] = []

    def answer() -> bool:
        if threading.current_thread() is not threading.main_thread() or len(refused) == 3:
            return True
        refused.append(1)
        return False

    with Interruption(patience=0.01) as interruption:
        interruption.defer(answer)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            wait_for(lambda: False)
        assert len(refused) == 3 and interruption.is_broken_off


def test_who_listens_to_signals_already_goes_on() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    try:
        with Interruption() as interruption:
            interruption.defer(never)
            signal.raise_signal(signal.SIGTERM)
            assert interruption.is_asked and os.read(reading, 9) == bytes([signal.SIGTERM])
        assert signal.set_wakeup_fd(-1) == writing
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


def test_a_signal_to_a_forked_process_is_not_the_parents() -> None:
    with Interruption(patience=0.0) as interruption:
        interruption.defer(lambda: True)
        assert status_of(lambda: signal.raise_signal(signal.SIGTERM)) == 1
        time.sleep(0.3)
        assert not interruption.is_asked and not interruption.is_broken_off
