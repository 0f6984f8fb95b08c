from collections.abc import Callable

import pytest

from quintain.credit.anchor import state_anchored
from quintain.credit.group import group_relative
from quintain.errors import DataError
from quintain.types import Credit, Failure, Group, Trajectory

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def by_turn(credit: Credit) -> list[list[float]]:
    return [[float(array[0]) for array in turns] for turns in credit.advantages]


def test_fixture_of_the_cards(trajectory: Make, group: MakeGroup) -> None:
    won = trajectory([0, 10], states=["s0", "s1"])
    lost = trajectory([0, 0, 0], states=["s0", "s0", "s2"])
    credit = state_anchored([group(won, lost)], std="none")
    expected = [[11.333333, 5], [-8.166667, -8.166667, -5]]
    assert by_turn(credit) == [pytest.approx(turns, abs=1e-5) for turns in expected]
    assert credit.metrics["credit/anchored_turns"] == pytest.approx(3 / 5)
    assert credit.metrics["credit/groups"] == 1
    half = state_anchored([group(won, lost)], std="none", weight=0.5)
    assert by_turn(half)[0][0] == pytest.approx(5 + 6.333333 / 2, abs=1e-5)


def test_long_episodes_do_not_count_more(trajectory: Make, group: MakeGroup) -> None:
    unique = group(trajectory([0, 10], states=["a", "b"]), trajectory([0, 0, 0], states=["c", "d", "e"]))
    assert by_turn(state_anchored([unique], std="none")) == [[5, 5], [-5, -5, -5]]


def test_unique_states_are_grpo(trajectory: Make, group: MakeGroup) -> None:
    groups = [group(*(trajectory([r, 1.0], states=[f"{r}a", f"{r}b"]) for r in (0.0, 1.0, 3.0)))]
    assert by_turn(state_anchored(groups)) == by_turn(group_relative(groups))


def test_equal_states_of_two_tasks_never_meet(trajectory: Make, group: MakeGroup) -> None:
    groups = [group(trajectory([float(n)], task=name, states=["s"])) for n, name in enumerate("abc")]
    assert by_turn(state_anchored(groups)) == [[0], [0], [0]]


def test_turns_without_a_state_have_no_step_credit(trajectory: Make, group: MakeGroup) -> None:
    episodes = group(trajectory([1.0, 0], states=["s", None]), trajectory([0.0, 0], states=["s", None]))
    credit = state_anchored([episodes], std="none", discount=1.0)
    assert by_turn(credit) == [[1, 0.5], [-1, -0.5]]


def test_an_environment_without_states_is_refused(
    trajectory: Make, group: MakeGroup, failure: Failure
) -> None:
    with pytest.raises(DataError, match="state keys of e"):
        state_anchored([group(trajectory([1.0]), trajectory([0.0]))])
    assert state_anchored([group(trajectory([1.0], outcome=failure))]).trajectories == ()
