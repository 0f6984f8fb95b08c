"""What breaks a rollout ends it soon, in one line that names who broke, and leaves nothing open."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from quintain.agents.harness import PlainText
from quintain.engines.protocol import Reply, Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment, Factory
from quintain.errors import EngineFault, EnvironmentFault, FailureRateError
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Failure, StepResult, Task, ToolSpec

pytestmark = pytest.mark.usefixtures("both_sources")
Deed = Callable[["World"], Any]


@dataclass
class Ledger:
    """What became of the worlds of a test."""

    made: list["World"] = field(default_factory=list["World"])
    closed: list["World"] = field(default_factory=list["World"])
    release: threading.Event = field(default_factory=threading.Event)


class World(Environment):
    """Go."""

    max_turns = 3

    def __init__(self, ledger: Ledger, *, reset: Deed | None = None, step: Deed | None = None) -> None:
        self.ledger, self.at_reset, self.at_step = ledger, reset, step
        ledger.made.append(self)

    def reset(self, task: Task) -> str:
        if self.at_reset is not None:
            self.at_reset(self)
        return "A wall."

    def step(self, action: Action) -> StepResult:
        if self.at_step is not None:
            self.at_step(self)
        return StepResult(observation="A wall.", reward=0.25)

    def close(self) -> None:
        self.ledger.closed.append(self)


def waits(world: World) -> None:
    """Hang until the test is over."""
    world.ledger.release.wait(100)


def breaks(_world: World) -> None:
    raise RuntimeError("boo")


@pytest.fixture
def ledger() -> Any:
    kept = Ledger()
    yield kept
    kept.release.set()


def speaking(chat: Chat) -> Scripted:
    return Scripted(lambda request, stream: chat.write("left"))


def rollout(
    chat: Chat, ledger: Ledger, engine: Any = None, *, make: Factory | None = None, **limits: Any
) -> Rollout:
    worlds = make or (lambda: World(ledger))
    return Rollout(PlainText(chat), worlds, engine or speaking(chat), limits=Limits(**limits))


def tasks(count: int) -> list[Task]:
    return [World(Ledger()).task("train", n) for n in range(count)]


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.slow
def test_many_hanging_episodes_are_waited_for_together(chat: Chat, ledger: Ledger, where: str) -> None:
    collecting = rollout(chat, ledger, make=lambda: World(ledger, **{where: waits}), step_timeout=0.3)
    started = time.monotonic()
    with pytest.raises(
        FailureRateError, match=r"200 episodes.*: got \d+ failures, .* \(timeout\): a call took"
    ):
        collecting.groups(tasks(100), size=2, seed=0)
    assert time.monotonic() - started < 30, "one after another they take 60 s"


def test_many_that_cannot_be_closed_are_waited_for_together(chat: Chat, ledger: Ledger) -> None:
    class Stuck(World):
        """Go."""

        def close(self) -> None:
            waits(self)

    make = partial(Stuck, ledger, reset=breaks)
    collecting = rollout(chat, ledger, make=make, step_timeout=0.4, attempts=1, max_failure_share=1.0)
    started = time.monotonic()
    collecting.groups(tasks(60), size=1, seed=0)
    assert time.monotonic() - started < 15, "one after another they take 24 s"


def test_the_failure_rate_is_looked_at_while_episodes_come_in(chat: Chat, ledger: Ledger) -> None:
    collecting = rollout(chat, ledger, make=lambda: World(ledger, reset=breaks), concurrency=4, attempts=1)
    # More than 6 where several ended before the rate was looked at again: how many is a matter of time.
    with pytest.raises(
        FailureRateError, match=r"^100 episodes, stopped after ([6-9]|[1-4]\d): got \1 failures, more than 5%"
    ):
        collecting.groups(tasks(100), size=1, seed=0)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_live_environments_are_closed_and_streams_forgotten_when_a_run_ends_early(
    chat: Chat, ledger: Ledger, kind: type[BaseException]
) -> None:
    engine = speaking(chat)
    released: list[str] = []
    engine.release = released.append  # type: ignore[method-assign]
    answer = engine.advance
    rounds: list[int] = []

    def advance() -> list[Reply]:
        rounds.append(1)
        if len(rounds) >= 3 and len({request.session for request in engine.requests}) > 1:
            raise kind("enough")
        return answer()

    engine.advance = advance  # type: ignore[method-assign]
    collecting = rollout(chat, ledger, engine)
    with pytest.raises(kind, match="enough"):
        collecting.groups(tasks(3), size=2, seed=0)
    collecting.close()  # what an episode has left to the next one
    assert 1 < len(ledger.made) <= 6
    assert sorted(map(id, ledger.closed)) == sorted(map(id, ledger.made))
    assert set(released) == {request.session for request in engine.requests} and len(set(released)) > 1


class Forgetful(Scripted):
    """Loses every reply but the first."""

    def advance(self) -> list[Reply]:
        return super().advance()[:1] if len(self.requests) < 4 else []


def test_a_lost_reply_is_the_fault_of_the_engine(chat: Chat, ledger: Ledger) -> None:
    engine = Forgetful(lambda request, stream: chat.write("left"))
    collecting = rollout(chat, ledger, engine, reply_timeout=0.05)
    with pytest.raises(
        EngineFault, match=r"[1-3] requests to the engine Forgetful: got no reply in \d+ s, the first"
    ):
        collecting.groups(tasks(3), size=1, seed=0)
    collecting.close()  # what an episode has left to the next one
    assert sorted(map(id, ledger.closed)) == sorted(map(id, ledger.made))


class Slow(Scripted):
    """Answers after as many rounds as it may sample tokens, and longer than the patience."""

    rounds = 0

    def advance(self) -> list[Reply]:
        self.rounds += 1
        time.sleep(0.001)
        return super().advance() if self.rounds % 64 == 0 else []


def test_an_engine_that_is_slow_has_lost_nothing(chat: Chat, ledger: Ledger) -> None:
    engine = Slow(lambda request, stream: chat.write("left"))
    (group,) = rollout(chat, ledger, engine, reply_timeout=0.01).groups(tasks(1), size=1, seed=0)
    assert len(group.scored[0].turns) == 3


class Confused(Scripted):
    """Answers for a session that nobody asked for."""

    def advance(self) -> list[Reply]:
        result = Completion(token_ids=(1,), logprobs=(-1.0,), stop="stop")
        return [Reply(session="other", result=result)]


def test_a_reply_that_nobody_asked_for_is_the_fault_of_the_engine(chat: Chat, ledger: Ledger) -> None:
    def script(request: Request, stream: tuple[int, ...]) -> Failure:
        raise AssertionError("not reached")

    with pytest.raises(
        EngineFault, match="the engine Confused: got one for session 'other', which waits for none"
    ):
        rollout(chat, ledger, Confused(script)).groups(tasks(1), size=1, seed=0)


def test_a_constructor_that_hangs_is_named(chat: Chat, ledger: Ledger) -> None:
    def make() -> World:
        ledger.release.wait(20)
        return World(ledger)

    collecting = rollout(chat, ledger, make=make, step_timeout=0.1)
    with pytest.raises(
        EnvironmentFault, match=r"making environment make: got a call took longer than 0.1 s; mend"
    ):
        collecting.groups(tasks(4), size=1, seed=0)


class Leaky(World):
    """Go."""

    def step(self, action: Action) -> StepResult:
        threading.Thread(target=self.ledger.release.wait, args=(20,), name="reader", daemon=True).start()
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
        return StepResult(observation="", is_terminated=True)


def test_threads_and_processes_left_behind_are_named(
    chat: Chat, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    def leaky() -> Leaky:
        return Leaky(ledger)

    collecting = Rollout(PlainText(chat), leaky, speaking(chat))
    collecting.groups(tasks(2), size=1, seed=0)
    processes = [world.process for world in ledger.made if isinstance(world, Leaky)]
    try:
        collecting.close()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    (record,) = caplog.records
    numbers = ", ".join(sorted(str(process.pid) for process in processes))
    what = f"2 threads (reader, reader), 2 processes ({numbers})" if sys.platform == "linux" else "2 threads"
    assert record.levelno == logging.WARNING
    assert f"environment leaky left {what}" in record.getMessage()
    assert "behind after close(); end them there" in record.getMessage()


def test_calls_that_never_returned_are_named(
    chat: Chat, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    worlds = iter([World(ledger), World(ledger, step=waits)])
    collecting = rollout(chat, ledger, make=lambda: next(worlds), step_timeout=0.4, attempts=1)
    collecting.groups(tasks(2), size=1, seed=0)
    collecting.close()
    assert "left 1 calls that never returned behind" in caplog.text


def test_what_ends_by_itself_after_closing_is_no_leak(
    chat: Chat, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    def brief(_world: World) -> None:
        threading.Thread(target=time.sleep, args=(0.1,)).start()

    collecting = rollout(chat, ledger, make=lambda: World(ledger, step=brief))
    collecting.groups(tasks(1), size=1, seed=0)
    collecting.close()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("instructions", 7, r"instructions must return a text: got int; return a str"),
        ("tools", None, r"tools must return a tuple of ToolSpec: got None"),
        ("tools", [{"name": "go"}], r"tools must return a tuple of ToolSpec: got \[\{'name': 'go'\}\]"),
    ],
)
def test_what_the_agent_is_told_has_its_type(
    chat: Chat, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, name: str, value: object, what: str
) -> None:
    monkeypatch.setattr(World, name, lambda self: value)
    with pytest.raises(FailureRateError, match=what):
        rollout(chat, ledger).groups(tasks(2), size=1, seed=0)


def test_tools_may_come_as_a_list(chat: Chat, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ToolSpec(name="go", description="Go.", parameters={"type": "object", "properties": {}})
    monkeypatch.setattr(World, "tools", lambda self: [spec])
    (group,) = rollout(chat, ledger).groups(tasks(1), size=1, seed=0)
    assert len(group.scored) == 1
