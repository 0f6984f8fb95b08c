"""Environments in workers that hang, crash and are killed: no episode is lost, and nothing stays behind.

Each shape once in the suite; twenty times, and 500 kills over 2,000 episodes, with ``make test-faults``.
"""

import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quintain.agents.harness import JsonTools, PlainText
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.worker import Worker
from quintain.errors import FailureRateError
from quintain.processes.tree import below
from quintain.processes.usage import children
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.text.parse import write_tool_calls
from quintain.types import Failure, Score, Task, ToolCall, Trajectory

WORLD = Path(__file__).with_name("breaking_world.py")
DEADLINE, AMPLE = 1.5, 20.0
"""Seconds for a call that is to run into its deadline, and for any other."""
MUCH = pytest.param(20, marks=[pytest.mark.faults, pytest.mark.timeout(600)])
EXPECTED: dict[str, str] = {
    "ignores_sigterm": "timeout",
    "holds_the_pipe": "crash",
    "stops_itself": "timeout",
    "exits": "SystemExit",
    "segfaults": "crash",
    "forks": "",
    "floods": "output",
    "says_half": "timeout",
    "says_garbage": "protocol",
    "is_late": "timeout",
    "answers_twice": "protocol",
    "resets_the_connection": "crash",
}
"""Shape → kind of the failure; empty where the episode goes on."""


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Hold the test to leaving no process, no file descriptor and no temporary folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    processes, handles = set(children()), len(os.listdir("/proc/self/fd"))
    yield
    assert set(children()) <= processes, "zombies count"
    assert list(folder.iterdir()) == []
    assert [name for name in filter(str.isdigit, os.listdir("/proc")) if belongs(name, str(folder))] == []
    assert len(os.listdir("/proc/self/fd")) == handles


def belongs(process: str, folder: str) -> bool:
    """Whether a process has its temporary files in `folder`, wherever it escaped to."""
    with suppress(OSError):
        return f"TMPDIR={folder}".encode() in Path("/proc", process, "environ").read_bytes()
    return False


def collecting(
    chat: Chat, spec: str, *, parallel: int, has_tool: bool = False, deadline: float = AMPLE, **limits: Any
) -> Rollout:
    """Return a rollout of `spec` in workers; the policy always does the same."""
    said = chat.write(write_tool_calls((ToolCall(name="push"),)) if has_tool else "push")
    agent = JsonTools(chat) if has_tool else PlainText(chat)
    make = find(f"worker/{spec}{'&' if '?' in spec else '?'}timeout={deadline}&parallel={parallel}")
    return Rollout(agent, make, Scripted(lambda request, stream: said), limits=Limits(**limits))


def played(rollout: Rollout, count: int) -> list[Trajectory]:
    tasks = [Task(id=f"t/{index}", environment="breaking", seed=index) for index in range(count)]
    with closing(rollout):
        return [t for group in rollout.groups(tasks, size=1, seed=0) for t in group.trajectories]


@pytest.fixture
def slowest(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that each request took, kills included."""
    took: list[float] = []
    exchange = Worker._exchange  # pyright: ignore[reportPrivateUsage]

    def timed(worker: Worker, do: str, arguments: tuple[object, ...], seconds: float) -> Any:
        started = time.monotonic()
        try:
            return exchange(worker, do, arguments, seconds)
        finally:
            if do != "open":
                took.append(time.monotonic() - started)

    monkeypatch.setattr(Worker, "_exchange", timed)
    return took


class Lateness(threading.Thread):
    """Measures how late a machine that is busy with something else lets a thread wake up."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0.0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            began = time.monotonic()
            self.is_over.wait(0.1)
            self.most = max(self.most, time.monotonic() - began - 0.1)


@pytest.fixture
def lateness() -> Iterator[Lateness]:
    found = Lateness()
    found.start()
    yield found
    found.is_over.set()
    found.join()


@pytest.mark.parametrize("count", [1, MUCH])
@pytest.mark.parametrize("where", ["step", "tool"])
@pytest.mark.parametrize("shape", EXPECTED)
@pytest.mark.slow
def test_a_worker_that_breaks_is_a_failure_with_an_owner(
    chat: Chat, slowest: list[float], lateness: Lateness, shape: str, where: str, count: int
) -> None:
    spec = f"{WORLD}:Breaking?shape={shape}&where={where}"
    limits = {"attempts": 1 if EXPECTED[shape] else 3, "max_failure_share": 1.0}
    deadline = DEADLINE if EXPECTED[shape] == "timeout" else AMPLE
    rollout = collecting(chat, spec, parallel=count, has_tool=where == "tool", deadline=deadline, **limits)
    trajectories = played(rollout, count)
    outcomes = [trajectory.outcome for trajectory in trajectories]
    assert len(outcomes) == count, "none is lost"
    if not EXPECTED[shape]:
        assert outcomes == [Score(value=1.0, is_success=True)] * count
        return
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    kind = "contract" if (shape, where) == ("exits", "tool") else EXPECTED[shape]
    owner = "tool" if where == "tool" and shape != "answers_twice" else "environment"
    assert Counter((f.owner, f.kind) for f in failures) == {(owner, kind): count}
    assert all(f.message.startswith("tool push ") == (owner == "tool") for f in failures)
    if count > 1:
        assert max(slowest) <= deadline + 2 + 5 * lateness.most


@pytest.mark.slow
def test_what_breaks_at_the_start_of_an_episode_is_tried_again_and_then_recorded(chat: Chat) -> None:
    rollout = collecting(chat, f"{WORLD}:Breaking?shape=segfaults&where=reset", parallel=2)
    with pytest.raises(
        FailureRateError, match=r"by the environment \(crash\).* reset ended its process \(signal SIGSEGV\)"
    ):
        played(rollout, 2)
    assert rollout.pool.num_attempts == 4 and len(rollout.pool.broken) == 4


@pytest.mark.slow
def test_a_call_beyond_the_rollouts_own_deadline_is_killed(chat: Chat) -> None:
    make = partial(Worker, f"{WORLD}:Breaking", shape="stops_itself", timeout=60.0, parallel=2)
    make().close()
    said = chat.write("push")
    limits = Limits(step_timeout=2.0, attempts=1, max_failure_share=1.0)
    rollout = Rollout(PlainText(chat), make, Scripted(lambda request, stream: said), limits=limits)
    outcomes = [trajectory.outcome for trajectory in played(rollout, 2)]
    assert [o.kind for o in outcomes if isinstance(o, Failure)] == ["timeout"] * 2
    for thread in rollout.pool.stepper.abandoned:
        thread.join(20)
        assert not thread.is_alive(), "it has its answer: the process is gone"


@pytest.mark.parametrize(
    ("kills", "count"),
    [(3, 24), pytest.param(500, 2_000, marks=[pytest.mark.faults, pytest.mark.timeout(1_800)])],
)
@pytest.mark.slow
def test_killed_workers_lose_no_episode(chat: Chat, kills: int, count: int) -> None:
    rollout = collecting(chat, f"{WORLD}:Breaking", parallel=8, attempts=4, max_failure_share=1.0)
    struck: list[int] = []
    is_over = threading.Event()
    others = set(children())

    def strike() -> None:
        """Kill a worker, keeper or what it keeps, every now and then, as long as there are episodes."""
        rng = random.Random(0)
        while len(struck) < kills and not is_over.wait(0.01):
            keepers = [process for process in children() if process not in others]
            found = [process for keeper in keepers for process in (keeper, *below(keeper))]
            if len(found) > 8:
                struck.append(rng.choice(found))
                with suppress(ProcessLookupError):
                    os.kill(struck[-1], signal.SIGKILL)

    nemesis = threading.Thread(target=strike)
    nemesis.start()
    try:
        trajectories = played(rollout, count)
    finally:
        is_over.set()
        nemesis.join()
    outcomes = [trajectory.outcome for trajectory in trajectories]
    assert len({t.task.id for t in trajectories}) == len(outcomes) == count
    scored = [outcome for outcome in outcomes if isinstance(outcome, Score)]
    assert scored == [Score(value=1.0, is_success=True)] * len(scored), "what was tried again began anew"
    assert {f.owner for f in rollout.pool.broken} <= {"environment"}
    assert {f.kind for f in rollout.pool.broken} <= {"crash", "timeout"}
    print(
        f"{len(struck)} kills, {count} episodes, {len(scored)} scored, {len(rollout.pool.broken)} tried again"
    )
    assert len(struck) == kills
