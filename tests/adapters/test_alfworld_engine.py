import sys
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest

from quintain.adapters.alfworld import environment as alfworld_engine
from quintain.adapters.alfworld.environment import AlfworldEngine
from quintain.adapters.alfworld.problem import CHORES, Room, domain_problem, draw_room, furniture
from quintain.environments.baselines import expert, noop, play
from quintain.environments.probes import PROBES, Subject
from quintain.environments.protocol import advance, begin
from quintain.errors import MissingExtra, UsageError
from quintain.types import Action

pytestmark = pytest.mark.timeout(900)
real = [pytest.mark.real("alfworld"), pytest.mark.real("fast_downward", "alfworld")]
CHECKED = ("builds", "tasks", "nonsense", "determinism", "no leak", "state keys", "closing")


def both(test: Any) -> Any:
    """Mark `test` as one that needs the package and its planner."""
    for mark in real:
        test = mark(test)
    return test


@pytest.fixture
def world() -> Iterator[AlfworldEngine]:
    with closing(AlfworldEngine("clean", objects=3)) as built:
        yield built


def test_a_room_as_a_problem_by_value() -> None:
    room = Room(kind="heat", thing="apple", place="shelf", lies=(("apple_1", "fridge_1"),))
    told = domain_problem(room)
    assert room.chore == "put a hot apple in or on a shelf"
    for fact in (
        "(inReceptacle apple_1 fridge_1)",
        "(objectAtLocation apple_1 place_0)",
        "(receptacleAtLocation fridge_1 place_0)",
        "(openable fridge_1)",
        "(heatable apple_1)",
        "(receptacleType ?r ShelfType) (inReceptacle ?o ?r) (isHot ?o)",
    ):
        assert fact in told, fact
    assert "(openable desk_1)" not in told and told.count("(") == told.count(")")


@pytest.mark.parametrize("kind", CHORES)
def test_what_is_needed_does_not_lie_where_it_belongs(kind: str) -> None:
    for seed in range(50):
        room = draw_room(kind, 4, Random(seed))
        needed = [piece for name, piece in room.lies if name.rpartition("_")[0] == room.thing]
        assert len(needed) == (2 if kind == "two" else 1) and set(needed) <= set(furniture())
        assert all(piece.rpartition("_")[0] != room.place for piece in needed)
        assert len({name for name, _ in room.lies}) == len(room.lies)


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[alfworld\]"'):
        AlfworldEngine()


def test_missing_rules_are_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alfworld_engine, "extra_module", lambda *_args, **_options: None)  # pyright: ignore[reportUnknownArgumentType]
    monkeypatch.setitem(sys.modules, "alfworld", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[alfworld\]"'):
        AlfworldEngine()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'clean'"):
        AlfworldEngine("clen")
    with pytest.raises(UsageError, match="objects=-1"):
        AlfworldEngine(objects=-1)


@both
@pytest.mark.parametrize("probe", CHECKED)
def test_keeps_the_contract(probe: str) -> None:
    with closing(Subject(make=lambda: AlfworldEngine(objects=2, max_turns=8), num_episodes=2)) as subject:
        assert PROBES[probe](subject)


@both
@pytest.mark.parametrize("chore", CHORES)
def test_the_planner_wins(chore: str) -> None:
    with closing(AlfworldEngine(chore, objects=3)) as world:
        episode = play(world, world.task("eval", 0), expert)
        assert episode.is_success and episode.total == 1.0 and 3 < len(episode.rewards) < 20
        assert not play(world, world.task("eval", 0), noop, 2).is_success


@both
def test_the_planner_plans_from_where_the_agent_went(world: AlfworldEngine) -> None:
    first = str(begin(world, world.task("train", 0)))
    assert "Your task is to: put a clean" in first and "Welcome" not in first
    assert not advance(world, Action(text="fly to fridge 1")).is_valid
    assert advance(world, Action(text="go to garbagecan 1")).is_valid
    while not (result := advance(world, world.expert_action())).is_terminated:
        pass
    assert result.is_success
