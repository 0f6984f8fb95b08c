"""Bonuses for what is rare, and rewards for what was achieved."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quintain.errors import DataError
from quintain.rewards.execution import passed_tests, state_reached
from quintain.rewards.exploration import Visits, by_environment, untried_bonus
from quintain.rewards.terms import Term, apply
from quintain.types import Failure, Group, Score, Task, Trajectory, Turn

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
    visits.see([group(first, second)])
    assert per_turn(first, visits.bonus(1.0)) == [1.0, pytest.approx(3**-0.5), 0.0]
    assert per_turn(second, visits.bonus(0.5)) == [0.5, 0.0, 0.0]
    visits.see([group(first)])
    assert per_turn(first, visits.bonus(1.0)) == [pytest.approx(2**-0.5), pytest.approx(5**-0.5), 0.0]
    assert per_turn(episode([]), visits.bonus(1.0)) == []


def test_tasks_count_apart_unless_asked(turn: MakeTurn, episode: Make) -> None:
    one = episode([turn(state="a"), turn(state="b")])
    other = replace(one, task=replace(one.task, id="u"))
    apart, together = Visits(), Visits(by_environment)
    for visits in (apart, together):
        visits.see([group(one), group(other)])
    assert per_turn(one, apart.bonus(1.0))[0] == 1
    assert per_turn(one, together.bonus(1.0))[0] == pytest.approx(2**-0.5)


def test_an_action_is_untried_once(turn: MakeTurn, episode: Make) -> None:
    acted = [turn(text="a"), turn(text="a"), turn(text="b", is_valid=False), turn(text="b"), turn(error="?")]
    assert per_turn(episode(acted), untried_bonus()) == [1, 0, 0, 1, 0]


def test_passed_tests_are_a_share_or_all(turn: MakeTurn, episode: Make) -> None:
    trajectory = episode([turn()])

    def value(term: Term) -> float:
        outcome = apply(trajectory, [term]).outcome
        assert isinstance(outcome, Score)
        return outcome.value

    assert value(passed_tests(lambda _: [True, False, True, True])) == 0.75
    assert value(passed_tests(lambda _: [True, False], is_partial=False)) == 0
    assert value(passed_tests(lambda _: [True, True], is_partial=False)) == 1


@pytest.mark.parametrize("result", [None, []])
def test_tests_that_cannot_run_are_a_failure_of_the_judge(
    turn: MakeTurn, episode: Make, result: list[bool] | None
) -> None:
    outcome = apply(episode([turn()]), [passed_tests(lambda _: result)]).outcome
    assert isinstance(outcome, Failure) and outcome.owner == "judge"


def test_a_state_is_right_only_if_something_had_to_be_done(turn: MakeTurn, episode: Make) -> None:
    trajectory = episode([turn(text="pay")])

    def term(wanted: str) -> Term:
        def goal(_: Task) -> str:
            return wanted

        return state_reached(lambda t: f"after {t.turns[-1].action.text}", goal, lambda _: "start")

    assert per_turn(trajectory, term("after pay")) == [1]
    assert per_turn(trajectory, term("after refund")) == [0]
    with pytest.raises(
        DataError, match="wanted state of t: got the initial one, which doing nothing reaches"
    ):
        apply(trajectory, [term("start")])
