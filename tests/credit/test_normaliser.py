"""The grid of means and deviations, by value; baselines of other episodes; KL in an outcome."""

from collections.abc import Callable
from itertools import product
from typing import cast, get_args

import numpy as np
import pytest

from quintain.credit.baseline import drop_small, subtract_others
from quintain.credit.discounted import discounted_return
from quintain.credit.group import group_relative, leave_one_out
from quintain.credit.normaliser import Over, normalise_over
from quintain.credit.outcome import outcome_return
from quintain.credit.penalty import add_token_rewards
from quintain.errors import UsageError
from quintain.types import Credit, Failure, Group, Score, Trajectory

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def first(credit: Credit) -> list[float]:
    """The advantage of the first token of each trajectory."""
    return [float(turns[0][0]) for turns in credit.advantages]


def groups_of(trajectory: Make, group: MakeGroup, *outcomes: tuple[float, ...]) -> list[Group]:
    return [
        group(*(trajectory([value], task=f"t{index}") for value in values))
        for index, values in enumerate(outcomes)
    ]


def test_group_mean_and_batch_deviation_by_hand(trajectory: Make, group: MakeGroup) -> None:
    groups = groups_of(trajectory, group, (1, 0), (1, 1))
    credit = normalise_over(groups, epsilon=0.0)
    assert first(credit) == pytest.approx([1.0, -1.0, 0.0, 0.0])
    biased = normalise_over(groups, is_unbiased=False, epsilon=0.0)
    assert first(biased) == pytest.approx([0.5 / 3**0.5 * 4, -0.5 / 3**0.5 * 4, 0, 0], rel=1e-6)


@pytest.mark.parametrize(("mean", "std"), list(product(get_args(Over), get_args(Over))))
def test_the_grid_against_plain_numpy_with_ragged_groups(
    mean: Over, std: Over, trajectory: Make, group: MakeGroup
) -> None:
    outcomes = [(1.0, 0.0, 0.5), (2.0, -1.0)]
    flat = np.array([x for own in outcomes for x in own])
    means = {
        "group": np.concatenate([[np.mean(own)] * len(own) for own in outcomes]),
        "batch": np.full(5, flat.mean()),
        "none": np.zeros(5),
    }
    deviations = {
        "group": np.concatenate([[np.std(own, ddof=1)] * len(own) for own in outcomes]) + 1e-6,
        "batch": np.full(5, flat.std(ddof=1) + 1e-6),
        "none": np.ones(5),
    }
    credit = normalise_over(groups_of(trajectory, group, *outcomes), mean=mean, std=std)
    assert first(credit) == pytest.approx(((flat - means[mean]) / deviations[std]).tolist(), rel=1e-6)


def test_corners_of_the_grid_are_the_known_methods(trajectory: Make, group: MakeGroup) -> None:
    groups = groups_of(trajectory, group, (1, 0, 0), (0, 0.5))
    assert first(normalise_over(groups, std="group")) == first(group_relative(groups))
    assert first(normalise_over(groups, std="none")) == first(group_relative(groups, std="none"))


def test_nearly_equal_groups_blow_up_by_group_and_not_by_batch(trajectory: Make, group: MakeGroup) -> None:
    groups = groups_of(trajectory, group, (1.0, 1.0, 1.0, 0.999), (1, 0, 1, 0))
    by_group = np.abs(first(normalise_over(groups, std="group"))[:4]).max()
    by_batch = np.abs(first(normalise_over(groups, std="batch"))[:4]).max()
    assert by_group > 1.4
    assert by_batch < 0.01


def test_singletons_and_no_variance_are_zero(trajectory: Make, group: MakeGroup) -> None:
    alone = groups_of(trajectory, group, (1,), (0, 0))
    for mean, std in product(("group", "batch"), ("group", "batch")):
        numbers = first(normalise_over(alone, mean=cast(Over, mean), std=cast(Over, std)))
        assert np.isfinite(numbers).all()
    assert first(normalise_over(alone)) == [0, 0, 0]
    assert first(normalise_over(groups_of(trajectory, group, (3,)), mean="batch")) == [0]
    assert normalise_over([]).trajectories == ()


def test_an_unknown_unit_names_the_known(trajectory: Make, group: MakeGroup) -> None:
    with pytest.raises(UsageError, match="std of outcomes: got 'bach'; did you mean 'batch'"):
        normalise_over(groups_of(trajectory, group, (1, 0)), std=cast(Over, "bach"))


def test_a_baseline_of_the_others(trajectory: Make, group: MakeGroup) -> None:
    groups = groups_of(trajectory, group, (1,), (0,), (0.5,))
    assert first(subtract_others(outcome_return(groups))) == pytest.approx([0.75, -0.75, 0])
    assert first(subtract_others(outcome_return(groups[:1]))) == [0]
    assert subtract_others(outcome_return([])).trajectories == ()
    one_group = [group(trajectory([1]), trajectory([0]), trajectory([0.5]))]
    assert first(subtract_others(outcome_return(one_group))) == pytest.approx(first(leave_one_out(one_group)))


def test_a_baseline_leaves_the_order_of_turns(trajectory: Make, group: MakeGroup) -> None:
    groups = [group(trajectory([1, 2])), group(trajectory([4], task="u"))]
    credit = subtract_others(discounted_return(groups))
    assert [[float(array[0]) for array in turns] for turns in credit.advantages] == [[-1, -2], [1]]


def test_small_advantages_are_dropped(outcomes: MakeGroup) -> None:
    credit = outcome_return([outcomes(0.005, -0.02, 1)])
    assert first(drop_small(credit, 0.01)) == pytest.approx([0, -0.02, 1])


def test_the_divergence_of_an_episode_lowers_its_outcome(
    trajectory: Make, group: MakeGroup, failure: Failure
) -> None:
    groups = [group(trajectory([1, 0]), trajectory([0], outcome=failure), trajectory([0]))]
    rewards = [[np.array([-0.1, -0.2]), np.array([0.0, 0.05])], [np.array([-0.5, 0.0])]]
    changed = add_token_rewards(groups, rewards)[0].trajectories
    assert changed[1].outcome is failure
    assert [t.outcome.value for t in changed if isinstance(t.outcome, Score)] == pytest.approx([0.75, -0.5])
    assert isinstance(changed[0].outcome, Score) and changed[0].outcome.is_success
