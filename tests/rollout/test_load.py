"""A load test: what breaks is counted by owner, what is slow is seen, what stays behind is named."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError
from quintain.processes.usage import resources
from quintain.rollout import load as module
from quintain.rollout.load import load, percentile
from quintain.types import Action, StepResult, Task
from quintain.worlds.guess.game import Guess


class World(Environment):
    """Go."""

    max_turns = 4
    made = 0
    is_over = threading.Event()
    """Whether the test is over: nothing hangs any longer."""

    def __init__(self, *, sick: str = "", share: int = 8) -> None:
        type(self).made += 1
        self.sick, self.share, self.number = sick, share, type(self).made
        if sick == "build" and self.number % 2:
            raise EnvironmentFault("no luck")

    def reset(self, task: Task) -> str:
        self.is_sick = task.seed % self.share == 0
        if self.sick == "reset" and self.is_sick:
            raise RuntimeError("boo")
        return "go"

    def step(self, action: Action) -> StepResult:
        if self.sick == "hang" and self.is_sick:
            self.is_over.wait(20)
        if self.sick == "slow":
            time.sleep(0.02)
        return StepResult(observation="on")

    def close(self) -> None:
        if self.sick == "leak":
            threading.Thread(target=self.is_over.wait, args=(20,), daemon=True).start()

    def task(self, split: Any, index: int) -> Task:
        return Task(id=f"{split}/{index}", environment="world", seed=index, split=split)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    World.made, World.is_over = 0, threading.Event()
    yield
    World.is_over.set()


def test_a_sound_environment() -> None:
    found = load(Guess, instances=8, episodes=32)
    assert (found.instances, found.episodes, dict(found.failures), found.first) == (8, 32, {}, "")
    assert len(found.starts) == 32 and len(found.steps) >= 64
    assert not found.left and found.failure_share == 0.0


def test_episodes_are_cut_at_their_limit_and_steps_are_timed() -> None:
    found = load(lambda: World(sick="slow"), instances=4, episodes=8)
    assert len(found.steps) == 32
    assert percentile(found.steps, 0.5) >= 0.02


def test_what_breaks_is_counted_and_built_anew() -> None:
    found = load(lambda: World(sick="reset"), instances=4, episodes=16)
    assert found.failures == {"environment/RuntimeError": 2} and found.first.startswith(
        "boo (test_load.py, line "
    )
    assert found.episodes == 16 and found.failure_share == 0.125
    assert len(found.starts) == 14 and World.made == 6


@pytest.mark.slow
def test_what_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    found = load(lambda: World(sick="hang"), instances=4, episodes=16, timeout=0.6)
    assert found.failures == {"environment/timeout": 2}


def test_what_cannot_be_built_is_a_failure_or_the_users_error() -> None:
    found = load(lambda: World(sick="build"), instances=4, episodes=8)
    assert found.failures["environment/contract"] >= 2 and found.first == "no luck"
    with pytest.raises(UsageError):
        load(lambda: find("no-such")(), instances=2, episodes=2)


def test_an_environment_that_can_never_be_built_ends() -> None:
    def broken() -> Environment:
        raise ValueError("never")

    found = load(broken, instances=3, episodes=6)
    assert found.failures == {"environment/ValueError": 3} and found.failure_share == 1.0


def test_no_more_episodes_are_begun_when_time_is_over() -> None:
    assert load(Guess, instances=2, episodes=1000, seconds=0.0).episodes < 4


def test_threads_that_stay_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    others = set(threading.enumerate())  # earlier tests gave some up, which may end meanwhile

    def without_others() -> dict[str, int]:
        return {**resources(), "threads": len(set(threading.enumerate()) - others)}

    monkeypatch.setattr(module, "PATIENCE", 0.5)
    monkeypatch.setattr(module, "resources", without_others)
    assert load(lambda: World(sick="leak"), instances=3, episodes=3).left == {"threads": 3}


class Shared(World):
    """Instances share something that stays open until it is closed for all."""

    open = threading.Event()

    def close(self) -> None:
        if not self.open.is_set():
            threading.Thread(target=self._stay, daemon=True).start()
            self.open.set()

    def _stay(self) -> None:
        while self.open.is_set():
            time.sleep(0.01)

    def drain(self) -> None:
        """Close it."""
        self.open.clear()


def test_what_instances_share_is_closed_with_the_last() -> None:
    assert load(lambda: Shared(), instances=3, episodes=3).left == {}


def test_workers_are_seen_with_their_memory_and_leave_nothing() -> None:
    found = load(find("worker/guess?parallel=2"), instances=2, episodes=4)
    assert not found.failures and not found.left
    assert found.memory > 1 << 20


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([4.0, 1.0, 2.0, 3.0], 0.5, 2.0), ([4.0, 1.0, 2.0, 3.0], 0.95, 4.0), ([7.0], 0.05, 7.0), ([], 0.5, 0.0)],
)
def test_percentiles(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected
