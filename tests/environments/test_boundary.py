"""Outside of episodes, too, an environment that raises, hangs or returns what it must not ends in one line."""

import math
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from quintain.curriculum.streams import TaskStream, draw_held_out
from quintain.environments import boundary
from quintain.environments.boundary import ask, call_within, check_range, spec_of, tasks_of
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, MissingExtra
from quintain.types import Split, Task
from quintain.worlds.guess.game import Guess


class World(Environment):
    """Go."""

    deeds: dict[str, Callable[[], Any]]

    def __init__(self) -> None:
        self.deeds.get("init", lambda: None)()

    def reset(self, task: Task) -> str:
        return ""

    def task(self, split: Split, index: int) -> Task:
        return cast(Task, self.deeds.get("task", lambda: super(World, self).task(split, index))())

    def close(self) -> None:
        self.deeds.get("close", lambda: None)()


def breaks() -> None:
    raise OSError("no such port")


def hangs() -> None:
    threading.Event().wait(1)


def leaves() -> None:
    raise SystemExit(3)


@pytest.fixture
def deeds(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """What the world does where; the deadline is short."""
    found: dict[str, Callable[[], Any]] = {}
    monkeypatch.setattr(World, "deeds", found, raising=False)
    monkeypatch.setattr(boundary, "DEADLINE", 0.1)
    return found


BROKEN = [
    (breaks, r"^environment World: got OSError: no such port \(test_boundary.py, line \d+\); repair it, then"),
    (hangs, r"^environment World: got no answer within 0.1 s; repair it, then `quintain check World`$"),
    (leaves, r"^environment World: got a call of sys.exit \(test_boundary.py, line \d+\); repair it"),
]  # fmt: skip


@pytest.mark.parametrize(("deed", "what"), BROKEN)
@pytest.mark.parametrize("where", ["init", "task", "close"])
def test_what_breaks_outside_of_episodes_is_one_line(
    deeds: dict[str, Callable[[], Any]], deed: Callable[[], None], what: str, where: str
) -> None:
    deeds[where] = deed
    with pytest.raises(EnvironmentFault, match=what):
        ask(World, lambda world: world.task("train", 0))
    if where != "close":
        with pytest.raises(EnvironmentFault, match=what):
            draw_held_out(tasks_of(World), 2)


def test_a_task_must_be_one(deeds: dict[str, Callable[[], Any]]) -> None:
    deeds["task"] = lambda: 7
    with pytest.raises(
        EnvironmentFault, match=r"environment World: got int from task\(\); return a quintain.Task"
    ):
        TaskStream(tasks_of(World)).draw(0, 1)


def test_tasks_are_those_of_the_environment() -> None:
    assert TaskStream(tasks_of(Guess)).draw(3, 2) == TaskStream(Guess).draw(3, 2)
    assert draw_held_out(tasks_of(find("guess")), 3) == draw_held_out(Guess, 3)


def test_errors_of_ours_keep_their_kind() -> None:
    def missing() -> None:
        raise MissingExtra.for_package("minigrid", "minigrid", "BabyAI")

    with pytest.raises(MissingExtra, match="BabyAI needs the package minigrid"):
        call_within("babyai", missing)
    with pytest.raises(EnvironmentFault, match=r"^environment x: got no port; repair it"):
        call_within("x", lambda: (_ for _ in ()).throw(EnvironmentFault("no port")))


def test_the_name_is_the_one_the_user_gave() -> None:
    assert spec_of(find("keydoor?rooms=2")) == "keydoor?rooms=2"
    assert spec_of(Guess) == "Guess"


def test_the_answer_comes_from_another_thread_and_the_world_is_closed(
    deeds: dict[str, Callable[[], Any]],
) -> None:
    closed: list[str] = []
    deeds["close"] = lambda: closed.append("x")
    assert ask(World, lambda world: threading.current_thread()) is not threading.main_thread()
    assert closed == ["x"]


@pytest.mark.parametrize("given", [(0, 1), [0.5, 0.5], (-math.inf, math.inf)])
def test_a_range_is_two_numbers(given: Any) -> None:
    world = Guess()
    world.return_range = given
    assert check_range(world) == (float(given[0]), float(given[1]))


@pytest.mark.parametrize(
    "given",
    [None, 1.0, (), (1,), (0, 1, 2), (1, 0), (math.nan, 1), (0, math.nan), ("0", "1"), (0, 10**400), "01"],
)
def test_what_is_no_range_is_a_fault_of_the_environment(given: Any) -> None:
    world = Guess()
    world.return_range = given
    with pytest.raises(
        EnvironmentFault, match=r"guess\.return_range: got a \w+ that is no range; give the smallest"
    ):
        check_range(world)
