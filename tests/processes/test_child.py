"""A kept process: however it ends, nothing of its tree is left, and its exit code is its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quintain
from quintain.errors import UsageError
from quintain.processes.child import Child, ending

SOURCE = Path(quintain.__file__).parents[1]
START = (
    f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import os, signal, time\n"
    "from quintain.processes.keeper import fork_keeper\nfork_keeper()\n"
)
ESCAPES = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        os._exit(0)
"""
Start = Callable[[str], Child]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    children: list[Child] = []

    def call(code: str) -> Child:
        children.append(Child([sys.executable, "-I", "-S", "-c", START + code]))
        return children[-1]

    yield call
    for child in children:
        child.end()


def said(child: Child, count: int = 1) -> bytes:
    assert child.process.stdout is not None
    return child.process.stdout.read(count)


def living(folder: str) -> list[int]:
    """Return the processes whose folder for temporary files is `folder`."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"TMPDIR={folder}".encode() in Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("code", "expected"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 11)", 139), ("", 0)]
)
def test_the_exit_code_is_that_of_the_worker_and_its_tree_goes_with_it(
    start: Start, code: str, expected: int
) -> None:
    child = start(ESCAPES + code)
    assert child.wait(20) == expected
    wait_until(lambda: living(child.folder) == [])
    assert not Path(child.folder).exists(), "the keeper takes the folder along"
    assert child.end() == expected


@pytest.mark.parametrize("how", ["end", "kill"])
def test_ending_takes_along_what_escaped_hangs_or_stands_still(start: Start, how: str) -> None:
    child = start(ESCAPES + "os.write(1, b'!'); os.kill(os.getpid(), signal.SIGSTOP)")
    said(child)
    wait_until(lambda: len(living(child.folder)) == 5)
    if how == "kill":
        child.kill()
        assert child.wait(20) == 137
    assert child.end() == child.end() == 137
    assert living(child.folder) == []
    assert child.exited == -1


@pytest.mark.slow
def test_a_keeper_that_stands_still_or_is_dead_is_no_refuge(start: Start) -> None:
    stopped = start("os.kill(os.getppid(), signal.SIGSTOP); os.write(1, b'!'); time.sleep(60)")
    said(stopped)
    assert stopped.end() == -9
    dead = start("os.kill(os.getppid(), signal.SIGKILL); os.write(1, b'!'); time.sleep(60)")
    assert dead.wait(20) == -9
    wait_until(lambda: living(stopped.folder) + living(dead.folder) == [])


def test_the_tree_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    program = (
        f"import sys, tempfile; sys.path.insert(0, {str(SOURCE)!r}); tempfile.tempdir = {str(tmp_path)!r}\n"
        "from quintain.processes.child import Child\n"
        f"child = Child([sys.executable, '-I', '-S', '-c', {START + ESCAPES + 'time.sleep(60)'!r}])\n"
        "print(child.folder, flush=True); child.process.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        folder = starter.stdout.readline().strip()
        wait_until(lambda: len(living(folder)) >= 4)
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: living(folder) == [])
    wait_until(lambda: not Path(folder).exists())


def test_what_cannot_be_started_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(*_arguments: object, **_named: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(OSError, match="no more processes"):
        Child(["true"])
    assert list(tmp_path.iterdir()) == []


def test_a_system_that_does_not_tell_of_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(
        UsageError, match=r"got the system .*; take the engine local, no --learner-ranks, and"
    ):
        Child(["true"])


def test_ways_to_end_in_words() -> None:
    assert [ending(code) for code in (0, 3, 139, -9, 255)] == [
        "exit status 0",
        "exit status 3",
        "signal SIGSEGV",
        "signal SIGKILL",
        "exit status 255",
    ]
