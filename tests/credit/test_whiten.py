from collections.abc import Callable

import numpy as np
import pytest

from quintain.credit.discounted import discounted_return
from quintain.credit.outcome import outcome_return
from quintain.credit.whiten import Unit, reinforce_plus_plus, reinforce_plus_plus_baseline, whiten
from quintain.errors import UsageError
from quintain.types import Credit, Failure, Group, Trajectory

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def firsts(credit: Credit) -> list[float]:
    return [float(turns[0][0]) for turns in credit.advantages]


@pytest.mark.parametrize(
    ("unit", "mean", "std"),
    [("token", 0.75, np.sqrt(0.1875)), ("turn", 2 / 3, np.sqrt(2 / 9)), ("trajectory", 0.5, 0.5)],
)
def test_the_unit_decides_how_much_a_long_episode_counts(
    trajectory: Make, group: MakeGroup, unit: Unit, mean: float, std: float
) -> None:
    credit = outcome_return([group(trajectory([0, 1], tokens=[2, 4]), trajectory([0], tokens=[2]))])
    assert firsts(whiten(credit, unit=unit)) == pytest.approx([(1 - mean) / std, -mean / std])


def test_whitened_tokens_have_mean_zero_and_deviation_one(trajectory: Make, group: MakeGroup) -> None:
    credit = reinforce_plus_plus(
        [group(trajectory([1, 0, 3], tokens=[1, 4, 2]), trajectory([0, 1]))], discount=0.9
    )
    flat = np.concatenate([array for turns in credit.advantages for array in turns])
    assert flat.mean() == pytest.approx(0, abs=1e-6) and flat.std() == pytest.approx(1, abs=1e-6)
    assert credit.metrics["credit/advantage_std"] == pytest.approx(1, abs=1e-6)
    assert credit.metrics["credit/groups"] == 1


def test_one_unit_or_no_variance_is_zero(trajectory: Make, group: MakeGroup, outcomes: MakeGroup) -> None:
    one = outcome_return([group(trajectory([1], tokens=[3]))])
    assert firsts(whiten(one, unit="trajectory")) == [0]
    assert firsts(whiten(one, unit="turn")) == [0]
    assert firsts(reinforce_plus_plus([outcomes(0.1, 0.1, 0.1)])) == [0, 0, 0]


def test_a_group_that_agrees_is_moved_by_the_mean_over_tokens(trajectory: Make, group: MakeGroup) -> None:
    """Tokens at ½ seven times and -½ once, four at 0: mean ¼, deviation √(2/12 - 1/16) = .323, so -.775."""
    differing = group(trajectory([1.0], tokens=[7]), trajectory([0.0], tokens=[1]))
    agreeing = group(*(trajectory([1.0], tokens=[2], task="u", group="u") for _ in range(2)))
    found = firsts(reinforce_plus_plus_baseline([differing, agreeing]))
    assert found[2:] == pytest.approx([-0.7746] * 2, abs=1e-4)


def test_nothing_scored(trajectory: Make, group: MakeGroup, failure: Failure) -> None:
    empty = outcome_return([group(trajectory([1], outcome=failure))])
    assert whiten(empty).advantages == ()


def test_turns_without_tokens_do_not_enter(trajectory: Make, group: MakeGroup) -> None:
    credit = outcome_return([group(trajectory([0, 1], tokens=[2, 0]), trajectory([0], tokens=[2]))])
    for unit in ("token", "turn", "trajectory"):
        assert firsts(whiten(credit, unit=unit, epsilon=0)) == [1, -1]


def test_the_baseline_form_subtracts_the_group_first(trajectory: Make, group: MakeGroup) -> None:
    groups = [
        group(trajectory([10], task="a"), trajectory([8], task="a")),
        group(trajectory([1], task="b"), trajectory([0], task="b")),
    ]
    scale = np.std([1, -1, 0.5, -0.5])
    expected = [x / scale for x in (1, -1, 0.5, -0.5)]
    assert firsts(reinforce_plus_plus_baseline(groups)) == pytest.approx(expected, abs=1e-6)


def test_each_key_has_its_own_statistics(trajectory: Make, group: MakeGroup) -> None:
    groups = [
        group(trajectory([100], task="a"), trajectory([0], task="a")),
        group(trajectory([1], task="b"), trajectory([0], task="b")),
    ]
    credit = whiten(discounted_return(groups), by=lambda trajectory, turn: trajectory.task.id + turn.seat)
    assert firsts(credit) == pytest.approx([1, -1, 1, -1], abs=1e-6)
    assert firsts(whiten(discounted_return(groups)))[2] < 0


def test_unknown_unit_is_refused(outcomes: MakeGroup) -> None:
    with pytest.raises(UsageError, match="unit of the statistics"):
        whiten(outcome_return([outcomes(1)]), unit="episode")  # type: ignore[arg-type]


def test_roles_are_whitened_apart_by_hand(trajectory: Make, group: MakeGroup) -> None:
    """PAG: answers of 2 and 0 and verdicts of 10 and 6 are each +1 and -1; together the answers would both lose."""
    groups = [
        group(*(trajectory([r], task=name) for r in own))
        for name, own in (("answer", (2, 0)), ("verdict", (10, 6)))
    ]
    credit = outcome_return(groups)
    assert firsts(whiten(credit, by=lambda t, _: t.task.id)) == pytest.approx([1, -1, 1, -1], abs=1e-6)
    assert [x > 0 for x in firsts(whiten(credit))] == [False, False, True, True]
