import os
import socket
import time
from ast import literal_eval
from contextlib import suppress
from pathlib import Path

import pytest

from quintain.errors import UsageError
from quintain.processes.tree import below, memory
from quintain.safety.isolation import find_interpreter
from quintain.safety.limits import Finished, Limits
from quintain.safety.sandbox import run

pytestmark = pytest.mark.usefixtures("isolation")
LONG = Limits(seconds=30.0)
"""For what must end by itself, or by another limit: this one is not to be passed on a busy machine."""


MARK = f"box of {os.getpid()}"


def python(code: str, limits: Limits = LONG, **files: str) -> Finished:
    return run([find_interpreter()[0], "-I", "-S", "-B", "-c", f"{code}\n# {MARK}"], files, limits)


EARLIER: set[int] = set()
"""Processes that other tests have not ended yet."""


@pytest.fixture(autouse=True)
def earlier() -> None:
    EARLIER.clear()
    EARLIER.update(left_behind())


def left_behind() -> set[int]:
    """Return processes of our boxes, and dead children of ours, that this test has left."""
    found = set(below(os.getpid()))
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                status = (entry / "status").read_text()
                is_dead = f"PPid:\t{os.getpid()}\n" in status and "State:\tZ" in status
                if is_dead or MARK in (entry / "cmdline").read_text(errors="replace"):
                    found.add(int(entry.name))
    return found - EARLIER


def test_a_command_runs_among_its_files_and_says_how_it_ended() -> None:
    found = run(["/bin/sh", "-c", "cat a/b.txt; echo wrong >&2; exit 3"], {"a/b.txt": "hello", "c": b"\x00"})
    assert found == Finished(stdout="hello", stderr="wrong\n", exit_code=3)
    assert run(["/bin/sh", "-c", "kill -9 $$; sleep 0.01; exit 7"]).exit_code in (7, 137)
    gone = run(["/no/such/program"])
    assert gone.exit_code and not gone.was_killed and "/no/such/program" in gone.stderr


def test_the_box_is_empty_but_for_the_system() -> None:
    code = """
import os, socket
def can_write(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        return False
    return True
def can_reach(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as found:
        found.settimeout(2)
        try:
            found.connect(address)
        except OSError:
            return False
    return True
print(dict(os.environ))
print([open(f"/proc/{pid}/environ").read() for pid in os.listdir("/proc") if pid.isdigit()])
print([path for path in ("/etc/shadow", "/etc/passwd", "/root", "/home", "/var", "/sys") if os.path.exists(path)])
places = ("/x", "/usr/x", "/usr/bin/x", "/dev/x", "/dev/shm/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger")
print([path for path in places if can_write(path)], can_write("/tmp/x"))
addresses = [(socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_INET, ("169.254.169.254", 80)),
             (socket.AF_UNIX, "\\0NAME"), (socket.AF_INET6, ("::1", PORT))]
print([address for address in addresses if can_reach(*address)])
print(len([pid for pid in os.listdir("/proc") if pid.isdigit()]), sorted(os.listdir("/proc/self/fd")))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print({name: status[name].strip() for name in ("NoNewPrivs", "CapEff", "CapPrm", "CapBnd", "CapAmb")})
"""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"quintain-test-{os.getpid()}"  # of this run alone: two may go side by side on one machine
        abstract.bind(f"\0{name}")
        abstract.listen()
        found = python(code.replace("PORT", str(server.getsockname()[1])).replace("NAME", name))
    lines = found.stdout.splitlines()
    assert set(literal_eval(lines[0])) <= {"PWD", "LC_CTYPE"}, found  # of bubblewrap's and of Python's making
    assert lines[1:5] == ["['PWD=/tmp\\x00']", "[]", "[] True", "[]"]
    assert lines[5] == "1 ['0', '1', '2', '3']"
    nothing = "0000000000000000"
    assert lines[6] == str(
        {"NoNewPrivs": "1"} | dict.fromkeys(("CapEff", "CapPrm", "CapBnd", "CapAmb"), nothing)
    )


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("while True: pass", Limits(seconds=0.3), "time"),
        (
            "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
            Limits(seconds=0.3),
            "time",
        ),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", LONG, "output"),
        ("import os\nwhile True: os.write(2, b'x' * 65536)", LONG, "output"),
        (
            "import os, time\nfor n in range(4):\n if not os.fork():\n  b = bytearray(40 << 20); time.sleep(60)\n"
            "time.sleep(60)",
            Limits(seconds=30.0, memory_bytes=100 << 20),
            "memory",
        ),
        ("n = 0\nwhile True: open(f'/tmp/{n}', 'w').close(); n += 1", LONG, "files"),
    ],
)
def test_a_limit_ends_the_whole_box(code: str, limits: Limits, reason: str) -> None:
    found = python(code, limits)
    assert (found.was_killed, found.reason, found.exit_code) == (True, reason, None)
    assert len(found.stdout) <= limits.output_bytes and len(found.stderr) <= limits.output_bytes
    assert left_behind() == set()


def test_a_fork_bomb_comes_up_against_the_number_of_processes() -> None:
    code = """
import os, time
num = 0
try:
    while num < 200:
        if not os.fork(): time.sleep(60)
        num += 1
except OSError as error:
    print(num, error.errno)
"""
    found = python(code, Limits(seconds=30.0, processes=10))
    num, errno = map(int, found.stdout.split())
    assert 5 <= num <= 12 and errno == 11
    assert left_behind() == set()


def test_what_a_command_leaves_behind_ends_with_it() -> None:
    code = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(60)
    os._exit(0)
print("gone")
"""
    started = time.monotonic()
    found = python(code)
    assert (found.stdout, found.exit_code) == ("gone\n", 0)
    assert time.monotonic() - started < 30
    assert left_behind() == set()


def test_what_one_process_may_have() -> None:
    code = """
def told(work):
    try:
        work()
    except (OSError, MemoryError) as error:
        print(type(error).__name__, getattr(error, "errno", ""))
def fill():
    with open("/tmp/x", "wb") as file:
        for _ in range(9): file.write(bytes(1 << 20))
told(lambda: bytearray(300 << 20))
told(fill)
told(lambda: [open("/dev/null") for _ in range(300)])
"""
    found = python(code, Limits(seconds=30.0, memory_bytes=128 << 20, scratch_bytes=4 << 20))
    kinds = [line.split()[0] for line in found.stdout.splitlines()]
    assert kinds == ["MemoryError", "OSError", "OSError"], found
    assert not found.was_killed


def test_a_box_cannot_open_another_inside() -> None:
    found = run(["/usr/bin/unshare", "--user", "--map-root-user", "/bin/true"], limits=LONG)
    assert found.exit_code and found.stderr


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "", "a\0b", "x" * 1_001])
def test_files_cannot_be_placed_elsewhere(name: str) -> None:
    with pytest.raises(UsageError, match="name of a file for the sandbox: got "):
        run(["/bin/true"], {name: ""})


def test_files_that_are_too_many_or_one() -> None:
    with pytest.raises(UsageError, match="got 200; give at most"):
        run(["/bin/true"], {str(n): "" for n in range(200)})
    with pytest.raises(UsageError, match="two names of one place"):
        run(["/bin/true"], {"a/b": "", "a//b": ""})


@pytest.mark.parametrize("wrong", [{"seconds": 0.0}, {"processes": -1}, {"memory_bytes": 1 << 20}])
def test_limits_that_leave_nothing(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"limits of a sandbox: got .*{next(iter(wrong))}"):
        Limits(**wrong)  # pyright: ignore[reportArgumentType]


def test_memory_counts_what_a_process_holds_for_itself() -> None:
    held = bytearray(8 << 20)
    assert memory([os.getpid()]) > len(held)
    assert memory([-1]) == 0
