"""Every attack from inside a box, again from a worker that was forked from an interpreter that waits.

What bubblewrap does for a box, our own program does for such a worker, so each of its steps is left out once, and the
attack that it stops must land. Two workers that follow each other in one interpreter must share nothing.
"""

import re

import pytest
from tests.attacks.attack import Scene
from tests.attacks.box import Inside, inside, no_filter
from tests.attacks.test_attacks import ATTACKS

from quintain.safety import warm
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess
from quintain.safety.warm import WarmBox

FROM_INSIDE = {each.name: each.attempt for each in ATTACKS if isinstance(each.attempt, Inside)}
EARLIER = """
import builtins, os, resource, signal, socket, sys
open('/tmp/left', 'w').write('by another')
builtins.left = sys.left = 'by another'
import ctypes
LIBC = ctypes.CDLL(None)
segment = LIBC.shmget(4711, 4096, 0o1666)
LIBC.sethostname(b'left', 4)
os.environ['LEFT'] = 'by another'
if not os.fork():
    os.setsid()
    while True: signal.pause()
"""
LATER = {
    "a file of the episode before": "return open('/tmp/left').read()",
    "memory shared by the episode before": "return called(LIBC.shmget(4711, 4096, 0))",
    "a process of the episode before": (
        "return only([n for n in os.listdir('/proc') if n.isdigit() and int(n) != os.getpid()])"
    ),
    "objects of the episode before": (
        "import builtins\nreturn only(vars(builtins).get('left') or vars(sys).get('left'))"
    ),
    "a variable of the episode before": "return only(os.environ.get('LEFT'))",
    "a name of the episode before": "return only(os.uname().nodename == 'left')",
    "the interpreter that forked it": "os.kill(os.getppid() or 10**6, 0)\nreturn 'it can be signalled'",
    "all processes at once": "os.kill(-1, 0)\nreturn 'there are others'",
    "handles of the interpreter": (
        "import stat\nreturn only([n for n in map(int, os.listdir('/proc/self/fd')) if n > 4 and "
        "stat.S_ISSOCK(os.fstat(n).st_mode)])"
    ),
}
LATER_ATTACKS = {name: inside(body) for name, body in LATER.items()}
PROC = r'^ +mount\("proc".*'
WITHOUT: dict[str, tuple[str, ...]] = {
    "a file of the episode before": (r'^ +mount\("tmpfs".*',),
    "memory shared by the episode before": (
        r" \| NEW_IPC",
        r'^    if settings\["filter"\]:\n(        .*\n)+',
    ),
    "a process of the episode before": (PROC,),
    "the interpreter that forked it": (r"^ +check_call\(LIBC.unshare\(NEW_PROCESSES\).*", PROC),
    "capabilities": (r"^ +drop_capabilities\(\)",),
}
"""attack → the steps of our program that it is stopped by"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test interpreters of its own: a weakened one must not wait for the next test.

    They have all the time that a busy machine takes: one that were given up would be replaced by another.
    """
    for name in ("START_DEADLINE", "FORK_DEADLINE", "END_DEADLINE"):
        monkeypatch.setattr(warm, name, 250.0)
    assert warm.works(), "interpreters cannot wait here"
    monkeypatch.setattr(warm, "_shelf", warm.Shelf(spare=0))


@pytest.mark.parametrize("attempt", [pytest.param(each, id=name) for name, each in FROM_INSIDE.items()])
def test_it_is_denied_in_a_warm_box(attempt: Inside, scene: Scene) -> None:
    while scene.canaries.touched():
        pass  # a weakened build before this was let through more than once
    found = attempt.as_cell(scene)
    assert not found.landed, found.said
    assert found.said, "denied without a word"
    assert scene.canaries.touched() == []


def after_another(attempt: Inside, scene: Scene) -> tuple[bool, str]:
    """Return what came of `attempt` in the worker that follows one that left all it could."""
    with PythonProcess(Limits(seconds=30.0)) as python:
        assert python.run("1").output == "1\n"
        assert isinstance(python.running, WarmBox), (
            "the first worker is forked from an interpreter that waits"
        )
        assert not python.run(EARLIER).reason
        before = warm.waiting()
    found = Inside(attempt.body, Limits(seconds=30.0)).as_cell(scene)
    assert warm.waiting() == before, "the second worker is of the same interpreter"
    return found.landed, found.said


@pytest.mark.parametrize("name", LATER)
def test_nothing_of_an_episode_is_left_for_the_next(name: str, scene: Scene) -> None:
    landed, said = after_another(LATER_ATTACKS[name], scene)
    assert not landed and said, said


@pytest.mark.parametrize("name", WITHOUT)
def test_a_weakened_interpreter_is_caught(name: str, scene: Scene) -> None:
    weakened = warm.source(warm.FORKER).decode()
    for step in WITHOUT[name]:
        weakened, count = re.subn(step, "", weakened, flags=re.MULTILINE)
        assert count == 1
    original = warm.source
    scene.patch.setattr(
        warm, "source", lambda place: weakened.encode() if place == warm.FORKER else original(place)
    )
    if name.endswith("before"):
        landed, said = after_another(LATER_ATTACKS[name], scene)
    else:
        found = {**FROM_INSIDE, **LATER_ATTACKS}[name].as_cell(scene)
        landed, said = found.landed, found.said
    assert landed, f"denied by something else than the step that it tests: {said}"


@pytest.mark.parametrize("name", ["reach bpf in the kernel", "type into a terminal"])
def test_a_worker_without_the_filter_is_caught(name: str, scene: Scene) -> None:
    no_filter(scene)
    assert FROM_INSIDE[name].as_cell(scene).landed
