"""Batches of calls under a deadline, and what becomes of what they raise."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from quintain.environments.boundary import call_within
from quintain.environments.protocol import Environment, advance, tool_action
from quintain.environments.tools import ToolFault, tool
from quintain.errors import EnvironmentFault
from quintain.rollout.stepper import LASTING, Stepper, guard_call
from quintain.safety import box
from quintain.types import Failure


def line_of(code: str) -> str:
    """Return how a failure names the line of this file that holds `code` first."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f" (test_stepper.py, line {next(n for n, line in enumerate(lines, start=1) if code in line)})"


def raising(error: BaseException) -> Callable[[], int]:
    def call() -> int:
        raise error

    return call


IS_OVER = threading.Event()
"""Whether the test is over: no thread stays behind it."""


@pytest.fixture(autouse=True)
def nothing_hangs_on() -> Iterator[None]:
    IS_OVER.clear()
    yield
    IS_OVER.set()


def hanging() -> int:
    """Outlive every deadline."""
    IS_OVER.wait(60)
    return -1


class Broken(Environment):
    """Use the tool."""

    @tool
    def saw(self) -> str:
        """Saw."""
        raise RuntimeError("no blade")


@pytest.mark.parametrize("num_workers", [1, 2, 3, 7, 20])
def test_results_come_in_order(num_workers: int) -> None:
    stepper = Stepper(timeout=5, num_workers=num_workers)
    assert stepper.run([partial(int, str(n)) for n in range(10)]) == list(range(10))
    assert stepper.run([]) == []


def test_a_call_that_returns_nothing_keeps_its_place() -> None:
    calls: list[Callable[[], object]] = [lambda: None, lambda: 1, lambda: None]
    assert Stepper(timeout=5, num_workers=2).run(calls) == [None, 1, None]


def test_calls_run_off_the_main_thread_and_the_workers_share_them() -> None:
    meet = threading.Barrier(3, timeout=30)

    def call() -> bool:
        meet.wait()
        return threading.current_thread() is threading.main_thread()

    assert Stepper(timeout=60, num_workers=3).run([call, call, call]) == [False] * 3


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (
            ValueError("bad"),
            Failure(owner="environment", kind="ValueError", message="bad" + line_of("raise error")),
        ),
        (
            KeyError("k"),
            Failure(owner="environment", kind="KeyError", message="'k'" + line_of("raise error")),
        ),
        (
            SystemExit(3),
            Failure(owner="environment", kind="SystemExit", message="called sys.exit(3)"),
        ),
        (EnvironmentFault("w: no"), Failure(owner="environment", kind="contract", message="w: no")),
        (
            ToolFault.of("saw", "raised"),
            Failure(owner="tool", kind="contract", message="tool saw raised"),
        ),
    ],
)
def test_what_is_raised_becomes_a_failure_with_its_owner(error: BaseException, failure: Failure) -> None:
    assert guard_call(raising(error)) == failure
    assert Stepper(timeout=5).run([lambda: 1, raising(error), lambda: 2]) == [1, failure, 2]


class Unsayable(str):
    """A text that cannot be written."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [
        GeneratorExit(),
        KeyboardInterrupt(),
        KeyError(Unsayable("x")),
        SystemExit(Unsayable("x")),
        BaseException(),
    ],
)
def test_whatever_is_raised_ends_its_own_call(error: BaseException) -> None:
    def call() -> int:
        raise error

    first, second = Stepper(timeout=60.0).run([call, lambda: 7])
    assert isinstance(first, Failure) and (first.owner, first.kind) == ("environment", type(error).__name__)
    assert second == 7
    with pytest.raises(EnvironmentFault, match="environment odd: got"):
        call_within("odd", call)


def test_a_signal_in_the_main_thread_is_none_of_the_environments() -> None:
    def call() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard_call(call)


def test_an_exception_in_a_tool_is_the_tool_s() -> None:
    result = guard_call(lambda: advance(Broken(), tool_action("saw")))
    assert isinstance(result, Failure)
    assert (result.owner, result.kind) == ("tool", "contract")
    assert result.message.startswith("tool saw raised RuntimeError: no blade")


def test_leaving_the_process_ends_the_call_alone() -> None:
    (result,) = Stepper(timeout=5).run([lambda: sys.exit("bye")])
    assert result == Failure(owner="environment", kind="SystemExit", message="called sys.exit('bye')")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_call_that_hangs_is_given_up_and_the_others_complete(num_workers: int) -> None:
    stepper = Stepper(timeout=0.5, num_workers=num_workers)
    calls = [lambda: 0, lambda: 1, hanging, lambda: 3, lambda: 4, lambda: 5]
    started = time.monotonic()
    results = stepper.run(calls)
    assert time.monotonic() - started < 30
    late = Failure(owner="environment", kind="timeout", message="a call took longer than 0.5 s")
    assert results == [0, 1, late, 3, 4, 5]
    assert stepper.num_abandoned == 1


def test_the_last_call_may_hang_too_and_several_may() -> None:
    stepper = Stepper(timeout=0.5)
    results = stepper.run([hanging, lambda: 1, hanging])
    assert [isinstance(r, Failure) for r in results] == [True, False, True]
    assert stepper.num_abandoned == 2


def test_what_an_abandoned_call_returns_later_is_lost() -> None:
    given_up, finished = threading.Event(), threading.Event()
    after = threading.Event()

    def late() -> int:
        assert given_up.wait(20)
        finished.set()
        return 7

    def twice() -> int:
        if after.is_set():
            raise AssertionError("called a second time")
        after.set()
        return 1

    results = Stepper(timeout=0.5).run([late, twice])
    given_up.set()
    assert finished.wait(20)
    time.sleep(0.05)
    assert isinstance(results[0], Failure)
    assert results[1:] == [1]


@pytest.mark.slow
def test_the_deadline_is_that_of_a_call_and_not_of_the_batch() -> None:
    stepper = Stepper(timeout=1.0, num_workers=1)
    assert stepper.run([partial(time.sleep, 0.25)] * 5) == [None] * 5
    assert stepper.num_abandoned == 0


def test_threads_of_ours_that_last_are_not_the_environments() -> None:
    is_over = threading.Event()
    names = ("reader", f"{box.THREAD}_0")
    threads = [threading.Thread(target=is_over.wait, args=(5,), name=name) for name in names]

    def begin() -> None:
        for thread in threads:
            thread.start()

    stepper = Stepper(timeout=5.0)
    stepper.run([begin])
    is_over.set()
    assert [thread.name for thread in stepper.started] == ["reader"]
    assert box.THREAD in LASTING


def test_submitted_calls_return_one_by_one_with_failures_of_their_own() -> None:
    stepper, release = Stepper(timeout=0.5), threading.Event()
    slow = stepper.submit(lambda: release.wait(60))
    broken = stepper.submit(lambda: [][0])
    quick = stepper.submit(lambda: "done")
    found: dict[int, object] = {}
    while len(found) < 2:
        found |= dict(stepper.take_returned(must_wait=True))
    assert found[quick] == "done"
    assert found[broken] == Failure(
        owner="environment", kind="IndexError", message="list index out of range" + line_of("[][0]")
    )
    ((number, late),) = stepper.take_returned(must_wait=True)
    assert number == slow and isinstance(late, Failure) and late.message == "a call took longer than 0.5 s"
    assert stepper.num_abandoned == 1
    assert stepper.take_returned(must_wait=True) == []
    release.set()
    assert stepper.run([lambda: 1, lambda: 2]) == [1, 2]
    stepper.close()


def test_submitted_calls_can_be_given_up() -> None:
    stepper, release = Stepper(timeout=10.0), threading.Event()
    stepper.submit(lambda: release.wait(10))
    assert stepper.take_returned(must_wait=False) == []
    assert stepper.take_returned(must_wait=True, seconds=0.01) == []
    stepper.give_up()
    assert stepper.num_abandoned == 1 and stepper.take_returned(must_wait=True) == []
    release.set()
    stepper.close()


def test_how_long_batches_were_under_way() -> None:
    stepper = Stepper(timeout=5.0)
    stepper.run([])
    assert stepper.busy_seconds == 0.0
    stepper.run([lambda: time.sleep(0.01), lambda: time.sleep(0.01)])
    assert stepper.busy_seconds >= 0.02
    stepper.close()
