import math
from collections.abc import Callable
from typing import Any

import pytest

from quintain.errors import UsageError
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import Measure, Term, apply, apply_all, mean_terms
from quintain.types import Failure, Group, Score, Trajectory, Turn

MakeTurn = Callable[..., Turn]
Make = Callable[..., Trajectory]


def constant(value: Any) -> Measure:
    return lambda trajectory: value


def rewards(trajectory: Trajectory) -> list[float]:
    return [turn.reward for turn in trajectory.turns]


def test_terms_are_weighed_placed_and_logged(turn: MakeTurn, episode: Make) -> None:
    given = episode([turn(reward=7), turn(reward=7)])
    terms = [
        Term(name="end", measure=constant(3), weight=0.5),
        Term(name="each", measure=constant([1, -2]), weight=2),
    ]
    made = apply(given, terms)
    assert rewards(made) == [2, -2.5]
    assert made.outcome == Score(value=-0.5, is_success=False)
    assert made.turns[0].reward_terms == {"own": 7, "end": 0, "each": 2}
    assert made.turns[1].reward_terms == {"own": 7, "end": 1.5, "each": -4}
    assert rewards(given) == [7, 7] and given.turns[0].reward_terms == {"own": 7}


def test_the_reward_of_the_environment_is_a_term_like_any_other(turn: MakeTurn, episode: Make) -> None:
    made = apply(episode([turn(reward=1), turn(reward=2)]), [environment_reward(0.5)])
    assert rewards(made) == [0.5, 1] and made.outcome == Score(value=1.5, is_success=False)
    assert rewards(apply(episode([turn(reward=1)]), [])) == [0]


def test_success_stays_what_it_was(turn: MakeTurn, episode: Make) -> None:
    given = episode([turn()], outcome=Score(value=1, is_success=True))
    assert apply(given, [Term(name="a", measure=constant(-1))]).outcome == Score(value=-1, is_success=True)


def test_a_failure_stays_a_failure(turn: MakeTurn, episode: Make) -> None:
    failure = Failure(owner="tool", kind="k", message="m")
    given = episode([turn()], outcome=failure)
    assert apply(given, [Term(name="a", measure=constant(1))]) is given


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (math.nan, "reward_not_finite"),
        (math.inf, "reward_not_finite"),
        ([0.0, math.nan], "reward_not_finite"),
        (None, "reward_type"),
        ("1.0", "reward_type"),
        ([0.0, None], "reward_type"),
        ([0.0, "1"], "reward_type"),
        ([1.0], "reward_shape"),
        ([], "reward_shape"),
    ],
)
def test_what_is_not_a_number_is_a_failure_of_the_judge(
    turn: MakeTurn, episode: Make, value: object, kind: str
) -> None:
    made = apply(episode([turn(reward=1), turn()]), [Term(name="odd", measure=constant(value))])
    assert isinstance(made.outcome, Failure)
    assert (made.outcome.owner, made.outcome.kind) == ("judge", kind)
    assert made.outcome.message.startswith("reward term odd: got")
    assert rewards(made) == [1, 0]


def test_an_episode_without_turns_has_a_score(episode: Make) -> None:
    made = apply(episode([]), [Term(name="a", measure=constant(0.5)), environment_reward()])
    assert made.outcome == Score(value=0.5, is_success=False)


@pytest.mark.parametrize(
    ("numbers", "cap", "expected"),
    [
        ([1.0, 1, 1], (-1, 2.5), [1, 1, 0.5]),
        ([-1.0, -1, 1], (-1.5, 0), [-1, -0.5, 0.5]),
        ([5.0, 0, 0], (0, 1), [1, 0, 0]),
        ([-1.0, 2, 0], (0, 1), [0, 1, 0]),
    ],
)
def test_a_cap_bounds_the_running_sum(
    turn: MakeTurn, episode: Make, numbers: list[float], cap: tuple[float, float], expected: list[float]
) -> None:
    made = apply(episode([turn()] * 3), [Term(name="a", measure=constant(numbers), cap=cap)])
    assert rewards(made) == expected


def test_the_cap_is_of_the_weighted_term(turn: MakeTurn, episode: Make) -> None:
    made = apply(episode([turn()]), [Term(name="a", measure=constant(10), weight=0.05, cap=(0, 0.2))])
    assert rewards(made) == [0.2]


@pytest.mark.parametrize(("right", "expected"), [(1.0, 1.5), (0.0, 0.0), (-1.0, -1.0)])
def test_a_gate_closes_a_term(turn: MakeTurn, episode: Make, right: float, expected: float) -> None:
    terms = [
        Term(name="right", measure=constant(right)),
        Term(name="bonus", measure=constant(0.5), gate="right"),
    ]
    assert rewards(apply(episode([turn()]), terms)) == [expected]


def test_names_gates_weights_and_caps_are_checked(turn: MakeTurn, episode: Make) -> None:
    a = Term(name="a", measure=constant(1))
    with pytest.raises(UsageError, match="'a' twice"):
        apply(episode([turn()]), [a, a])
    with pytest.raises(UsageError, match="not an earlier term"):
        apply(episode([turn()]), [Term(name="b", measure=constant(1), gate="a"), a])
    with pytest.raises(UsageError, match="weight of the reward term c"):
        Term(name="c", measure=constant(1), weight=math.nan)
    with pytest.raises(UsageError, match="cap of the reward term c"):
        Term(name="c", measure=constant(1), cap=(1, 0))


def test_apply_all(turn: MakeTurn, episode: Make) -> None:
    given = episode([turn()])
    group = Group(task=given.task, trajectories=(given, given))
    (made,) = apply_all([group], [Term(name="a", measure=constant(2))])
    assert [rewards(t) for t in made.trajectories] == [[2], [2]]


@pytest.mark.parametrize("numbers", [1e308, [1e308, 1e308]])
def test_numbers_that_overflow_when_weighed_are_failures(turn: MakeTurn, episode: Make, numbers: Any) -> None:
    given = episode([turn(), turn()])
    failed = apply(given, [Term(name="huge", measure=constant(numbers), weight=10.0)]).outcome
    assert isinstance(failed, Failure) and "huge" in failed.message and "weight 10.0" in failed.message


def test_means_of_terms_are_over_scored_episodes(turn: MakeTurn, episode: Make) -> None:
    two = episode([turn(reward=1.0), turn(reward=-0.5)])
    broken = episode([turn(reward=9.0)], outcome=Failure(owner="judge", kind="k", message="m"))
    assert mean_terms([two, episode([turn(reward=0.25)]), broken]) == {"own": 0.375}
    assert mean_terms([]) == mean_terms([broken]) == {}
