"""Bonuses for what is rare, and rewards for what was achieved."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.build import make_group

from quintain.rewards.conduct import pay_executed, well_formed
from quintain.rewards.efficiency import num_calls, num_turns
from quintain.rewards.exploration import Visits, by_environment, pay_untried
from quintain.rewards.retrieval import has_searched
from quintain.rewards.terms import Term, apply
from quintain.types import Trajectory, Turn

MakeTurn = Callable[..., Turn]
Make = Callable[..., Trajectory]


def per_turn(trajectory: Trajectory, term: Term) -> list[float]:
    return [turn.reward for turn in apply(trajectory, [term]).turns]


def test_rare_states_pay_more(turn: MakeTurn, episode: Make) -> None:
    first = episode([turn(state="a"), turn(state="b"), turn(state="a")])
    second = episode([turn(state="a"), turn(state="c"), turn()])
    visits = Visits()
    visits.update([make_group(first, second)])
    assert per_turn(first, visits.bonus(1.0)) == [1.0, pytest.approx(3**-0.5), 0.0]
    assert per_turn(second, visits.bonus(0.5)) == [0.5, 0.0, 0.0]
    visits.update([make_group(first)])
    assert per_turn(first, visits.bonus(1.0)) == [pytest.approx(2**-0.5), pytest.approx(5**-0.5), 0.0]
    assert per_turn(episode([]), visits.bonus(1.0)) == []


def test_tasks_count_apart_unless_asked(turn: MakeTurn, episode: Make) -> None:
    one = episode([turn(state="a"), turn(state="b")])
    other = replace(one, task=replace(one.task, id="u"))
    apart, together = Visits(), Visits(by_environment)
    for visits in (apart, together):
        visits.update([make_group(one), make_group(other)])
    assert per_turn(one, apart.bonus(1.0))[0] == 1
    assert per_turn(one, together.bonus(1.0))[0] == pytest.approx(2**-0.5)


def test_what_an_agent_says_to_itself_is_neither_paid_nor_counted(turn: MakeTurn, episode: Make) -> None:
    plan = turn(seat="agent/plan", text="pull a", calls=1, state="a")
    other = turn(seat="agent/plan", text="pull a first", calls=2, state="a")
    pulls = [turn(text="a", calls=1, state="a", tokens=3), turn(text="a", calls=1, state="b")]
    deliberate = episode([plan, pulls[0], replace(other, state_key="b"), pulls[1]])
    bare = episode(pulls)
    assert per_turn(deliberate, pay_untried()) == [0, 1, 0, 0]
    visits, same = Visits(), Visits()
    visits.update([make_group(deliberate)])
    same.update([make_group(bare)])
    assert visits.counts == same.counts
    assert per_turn(deliberate, visits.bonus(1.0)) == [0, 1, 0, 0]
    assert per_turn(bare, visits.bonus(1.0)) == [1, 0]
    assert (num_turns(deliberate), num_calls(deliberate)) == (num_turns(bare), num_calls(bare)) == (2, 2)
    draft = turn(seat="agent/draft", error="unreadable")
    assert per_turn(episode([draft, pulls[0]]), well_formed())[-1] == 1
    assert per_turn(deliberate, pay_executed(1.0)) == [0, 1, 0, 1]
    assert not has_searched(episode([plan, turn(text="no call")])), "a call that was planned is none"


def test_an_action_is_untried_once(turn: MakeTurn, episode: Make) -> None:
    acted = [turn(text="a"), turn(text="a"), turn(text="b", is_valid=False), turn(text="b"), turn(error="?")]
    assert per_turn(episode(acted), pay_untried()) == [1, 0, 0, 1, 0]
