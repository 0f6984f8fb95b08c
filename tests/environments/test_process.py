"""Environment code that would end the process, or come back in two of them."""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from quintain.environments.boundary import call_within
from quintain.environments.process import ProcessWatch
from quintain.errors import EnvironmentFault
from quintain.rollout.stepper import Stepper, guard_call
from quintain.types import Failure

EXIT = r"os\._exit\(0\) was called, which would end the whole run without a word"
COPY = "a process was forked that came back as a second copy of the run, which was ended"


def leave() -> None:
    os._exit(0)


def forked_child(call: Callable[[], Any]) -> int:
    """Return the status of a process that does `call`, and 77 where that came back."""
    child = os.fork()
    if not child:
        try:
            call()
        finally:
            os._exit(77)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    "ask", [guard_call, lambda call: call_within("env", call)], ids=["guarded", "call_within"]
)  # pyright: ignore[reportUnknownLambdaType]
def test_leaving_the_process_is_a_fault_that_says_so(ask: Callable[[Any], Any]) -> None:
    if ask is guard_call:
        found = ask(leave)
        assert isinstance(found, Failure) and (found.owner, found.kind) == ("environment", "contract")
        assert found.message.startswith("os._exit(0) was called")
        return
    with pytest.raises(EnvironmentFault, match=EXIT):
        ask(leave)


def test_the_same_in_a_thread_of_the_rollout() -> None:
    (found,) = Stepper(timeout=30).run([leave])
    assert isinstance(found, Failure) and "os._exit(0) was called" in found.message


def test_who_is_not_in_an_environment_may_leave() -> None:
    assert forked_child(lambda: os._exit(5)) == 5
    assert forked_child(lambda: guard_call(lambda: forked_child(lambda: os._exit(5)))) == 77, (
        "a child of an environment"
    )


def test_other_threads_may_leave_while_an_environment_acts() -> None:
    """The second Ctrl-C ends the process from a thread of its own, whatever the environment does."""

    def act() -> None:
        thread = threading.Thread(target=lambda: os._exit(130))
        thread.start()
        thread.join()

    assert forked_child(lambda: guard_call(act)) == 130


def test_a_copy_of_the_process_that_comes_back_is_ended_and_told() -> None:
    children: list[int] = []

    def act() -> str:
        children.append(os.fork())
        if children[-1]:
            os.waitpid(children[-1], 0)
        return "shown"

    found = guard_call(act)
    assert isinstance(found, Failure) and found.message.startswith(COPY)
    assert guard_call(lambda: 1) == 1, "it is told once"
    assert len(children) == 1 and children[0] > 0


def test_a_copy_that_comes_back_by_an_error_is_ended_too() -> None:
    def act() -> None:
        child = os.fork()
        if not child:
            raise ValueError("in the copy")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == EnvironmentFault.exit_code

    with pytest.raises(EnvironmentFault, match=COPY), ProcessWatch():
        act()


def test_a_copy_that_comes_back_later_is_told_at_the_next_call() -> None:
    reading, writing = os.pipe()

    def act() -> int:
        child = os.fork()
        if not child:
            os.read(reading, 1)
        return child

    child = guard_call(act)
    assert isinstance(child, int)
    os.write(writing, b"!")
    os.waitpid(child, 0)
    found = guard_call(lambda: 1)
    assert isinstance(found, Failure) and found.message.startswith(COPY)
    os.close(reading)
    os.close(writing)


def test_a_copy_of_another_process_is_not_told_here() -> None:
    def act() -> None:
        child = os.fork()
        if child:
            os.waitpid(child, 0)

    assert forked_child(lambda: guard_call(act)) == 77
    assert guard_call(lambda: 1) == 1
