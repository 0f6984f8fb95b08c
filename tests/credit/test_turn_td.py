"""Targets of turn critics by hand, the fixed point of a chain, and what says how good a critic is."""

from collections.abc import Callable, Sequence
from math import isnan, nan, sqrt

import numpy as np
import pytest

from quintain.credit.turn_td import (
    TurnValues,
    best_ways,
    by_way,
    combine_critics,
    critic_metrics,
    least,
    monte_carlo,
    q_targets,
    state_targets,
    way_advantages,
)
from quintain.errors import DataError
from quintain.types import Stop, Trajectory

Make = Callable[..., Trajectory]


def test_the_end_of_a_task_masks_the_bootstrap_and_a_cut_has_no_target(trajectory: Make) -> None:
    ended = trajectory([0.5, 0.0, 1.0])
    limit, cut = trajectory([0, 0], stop=Stop.MAX_TURNS), trajectory([0, 0.25], stop=Stop.CUT)
    before = [[9.0, 0.4, 0.8], [9.0, 0.2], [9.0, 0.6]]
    first, second, third = q_targets([ended, limit, cut], before, 0.5)
    assert first == pytest.approx([0.5 + 0.5 * 0.4, 0.5 * 0.8, 1.0]), "nothing is left after done"
    assert second == pytest.approx([0.1, 0.0]), "the task's own limit of turns ends it"
    assert third[0] == pytest.approx(0.3) and isnan(third[1])
    with pytest.raises(DataError, match=r"values of the turns of 1 episodes: got \[2\]; expected one a turn"):
        q_targets([ended], [[1.0, 2.0]], 0.5)


def test_iterating_the_targets_gives_the_values_of_a_chain(trajectory: Make) -> None:
    """Four states, a reward of 1 at the end of the chain: V(s_k) = γ^(3-k), from targets alone (to 1e-3)."""
    chain, discount = trajectory([0, 0, 0, 1]), 0.9
    v, slow = np.zeros(4), np.zeros(4)
    for _ in range(200):
        (q,) = q_targets([chain], [slow.tolist()], discount)
        ((y,),) = [state_targets([[[1.0]] * 4], [[[each] for each in q]])]
        v = np.array(y)
        slow += 0.1 * (v - slow)
    assert v == pytest.approx([discount**3, discount**2, discount, 1.0], abs=1e-3)


def test_ways_are_weighed_and_advantages_average_over_states() -> None:
    weights: Sequence[Sequence[Sequence[float]]] = [[[0.25, 0.75], [1.0]]]
    after = by_way(weights, [1.0, 0.0, 3.0])
    assert after == [[[1.0, 0.0], [3.0]]] and state_targets(weights, after) == [[0.25, 3.0]]
    got = way_advantages(weights, after, [[0.25, 2.0]])
    assert got == pytest.approx([1.5 * 0.25 * 0.75, 1.5 * 0.75 * -0.25, 1.5 * 1.0])
    mean_over_states = (0.25 * 0.75 + 0.75 * -0.25 + 1.0) / 2
    assert sum(got) / 3 == pytest.approx(mean_over_states), "three ways in two states"
    assert way_advantages([[[1.0], [1.0]]], [[[2.0], [0.5]]], [[1.0, 1.0]]) == [1.0, -0.5], "one way: Q - V"
    assert way_advantages([], [], []) == []
    with pytest.raises(DataError, match="numbers of 3 ways to act: got 2"):
        by_way(weights, [1.0, 2.0])


def test_the_best_way_is_kept_only_if_it_beats_the_state() -> None:
    """The threshold comes after the arg max: the best of bad ways has no weight, and neither has an equal one."""
    after = [[[0.5, 0.9, 0.9], [-2.0, -1.0]], [[1.0]]]
    assert best_ways(after, [[0.5, 0.0], [0.9]], 0.3) == [(1, 1.0), (1, 0.0), (0, 0.0)]
    assert best_ways([[[0.5]]], [[0.0]], 0.5) == [(0, 0.0)] and best_ways([], [], 0.0) == []


def test_the_smaller_of_two_critics_and_other_choices() -> None:
    one, two = TurnValues(before=[[1, 4]], after=[[0, 2]]), TurnValues(before=[[3, 2]], after=[[1, 1]])
    assert least([one, two]) == TurnValues(before=[[1, 2]], after=[[0, 1]])
    assert combine_critics([one, two], max) == TurnValues(before=[[3, 4]], after=[[1, 2]])


def test_how_good_a_critic_is_by_hand(trajectory: Make) -> None:
    """Returns with γ ½ are (.5, 1) and (0, 0); V is off by .5 at one of four turns."""
    played = [trajectory([0, 1]), trajectory([0, 0])]
    assert monte_carlo(played, 0.5) == [[0.5, 1], [0, 0]]
    values = TurnValues(before=[[0.5, 0.5], [0, 0]], after=[[0.75, 1.0], [0, 0.25]])
    found = critic_metrics(played, values, 0.5)
    spread = np.var([0.5, 1, 0, 0])
    assert found["critic/explained_variance"] == pytest.approx(1 - np.var([0, 0.5, 0, 0]) / spread)
    assert found["critic/overestimation"] == pytest.approx((0.25 + 0.25) / 4)
    errors = [0.75 - 0.5 * 0.5, 0.0, 0.0, 0.25]
    assert found["critic/td_error"] == pytest.approx(sqrt(sum(e * e for e in errors) / 4))
    slow = TurnValues(before=[[0, 1.5], [0, 0]], after=values.after)
    assert critic_metrics(played, values, 0.5, target=slow)["critic/td_error"] == pytest.approx(0.125)
    alone = critic_metrics(played, values, 0.5, has_q=False)
    assert alone["critic/overestimation"] == pytest.approx(-0.125), "V stands for Q"


def test_what_cannot_be_known_is_not_said(trajectory: Make) -> None:
    cut = trajectory([0.0], stop=Stop.CUT)
    assert monte_carlo([cut], 1.0)[0] == pytest.approx([nan], nan_ok=True)
    assert critic_metrics([cut], TurnValues(before=[[1]], after=[[1]]), 1.0) == {}
    same = critic_metrics([trajectory([0.0])], TurnValues(before=[[1]], after=[[1]]), 1.0)
    assert same["critic/explained_variance"] == 0.0 and same["critic/overestimation"] == 1.0
