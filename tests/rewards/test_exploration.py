"""Bonuses for what is rare, and rewards for what was achieved."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quintain.rewards.exploration import Visits, by_environment, untried_bonus
from quintain.rewards.terms import Term, apply
from quintain.types import Group, Trajectory, Turn

MakeTurn = Callable[..., Turn]
Make = Callable[..., Trajectory]


def per_turn(trajectory: Trajectory, term: Term) -> list[float]:
    return [turn.reward for turn in apply(trajectory, [term]).turns]


def group(*trajectories: Trajectory) -> Group:
    return Group(task=trajectories[0].task, trajectories=trajectories)


def test_rare_states_pay_more(turn: MakeTurn, episode: Make) -> None:
    first = episode([turn(state="a"), turn(state="b"), turn(state="a")])
    second = episode([turn(state="a"), turn(state="c"), turn()])
    visits = Visits()
    visits.update([group(first, second)])
    assert per_turn(first, visits.bonus(1.0)) == [1.0, pytest.approx(3**-0.5), 0.0]
    assert per_turn(second, visits.bonus(0.5)) == [0.5, 0.0, 0.0]
    visits.update([group(first)])
    assert per_turn(first, visits.bonus(1.0)) == [pytest.approx(2**-0.5), pytest.approx(5**-0.5), 0.0]
    assert per_turn(episode([]), visits.bonus(1.0)) == []


def test_tasks_count_apart_unless_asked(turn: MakeTurn, episode: Make) -> None:
    one = episode([turn(state="a"), turn(state="b")])
    other = replace(one, task=replace(one.task, id="u"))
    apart, together = Visits(), Visits(by_environment)
    for visits in (apart, together):
        visits.update([group(one), group(other)])
    assert per_turn(one, apart.bonus(1.0))[0] == 1
    assert per_turn(one, together.bonus(1.0))[0] == pytest.approx(2**-0.5)


def test_an_action_is_untried_once(turn: MakeTurn, episode: Make) -> None:
    acted = [turn(text="a"), turn(text="a"), turn(text="b", is_valid=False), turn(text="b"), turn(error="?")]
    assert per_turn(episode(acted), untried_bonus()) == [1, 0, 0, 1, 0]
