from collections.abc import Callable
from dataclasses import replace

import pytest

from quintain.data.filters import (
    at_least,
    best_of_group,
    distinct,
    most_uncertain,
    solved_between,
    successful,
    token_hash,
    with_variance,
    without_truncated,
)
from quintain.data.mixture import BLOCK, DatasetMixture
from quintain.data.pairs import all_pairs, best_and_worst
from quintain.errors import DataError, UsageError
from quintain.types import Failure, Group, Score, Stop, Trajectory, scored

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]
FAILURE = Failure(owner="tool", kind="k", message="m")


def values(groups: list[Group]) -> list[list[float]]:
    return [[t.outcome.value for t in group.trajectories if isinstance(t.outcome, Score)] for group in groups]


@pytest.fixture
def some(trajectory: Make, group_of: MakeGroup) -> Callable[..., Group]:
    """Groups from outcomes; None is a failure. Token ids differ from trajectory to trajectory."""

    def make(*outcomes: float | None, task: str = "t") -> Group:
        made = [
            trajectory(
                [((1,), (index + 2,))],
                value=value or 0.0,
                task=task,
                outcome=FAILURE if value is None else None,
            )
            for index, value in enumerate(outcomes)
        ]
        return group_of(*made)

    return make


def test_filters_by_outcome(some: Callable[..., Group]) -> None:
    groups = [some(1.0, 0, None, 0.5), some(0, 0), some(None)]
    assert values(successful(groups)) == [[1.0, 0.5]]
    assert values(at_least(groups, 0.75)) == [[1.0]]
    assert values(at_least(groups, 0)) == [[1.0, 0, 0.5], [0, 0]]
    assert len(scored(groups)) == 5


def test_groups_by_the_share_that_was_solved(some: Callable[..., Group]) -> None:
    groups = [some(1.0, 1.0), some(1.0, 0, None), some(0, 0), some(None)]
    assert values(solved_between(groups, 0.0, 0.9)) == [[1.0, 0], [0, 0]]
    assert values(solved_between(groups, 0.5, 1.0)) == [[1.0, 1.0], [1.0, 0]]
    with pytest.raises(UsageError, match=r"solved shares to keep: got 0.9 to 0.1"):
        solved_between(groups, 0.9, 0.1)


def test_best_of_group(some: Callable[..., Group], trajectory: Make, group_of: MakeGroup) -> None:
    groups = [some(0.0, 2.0, None, 1.0), some(None)]
    assert values(best_of_group(groups)) == [[2.0]]
    assert values(best_of_group(groups, 2)) == [[2.0, 1.0]]
    brief = group_of(trajectory([((1,), (2, 3))]), trajectory([((1,), (4,))]))
    assert best_of_group([brief])[0].trajectories[0].num_sampled == 1
    with pytest.raises(UsageError, match="at least 1"):
        best_of_group(groups, 0)


def test_distinct_keeps_the_first(trajectory: Make, group_of: MakeGroup) -> None:
    a, b = trajectory([((1,), (2,))]), trajectory([((1,), (2,))], value=0.0)
    c, d = trajectory([((1, 2), (2,))]), trajectory([((1,), (2,))], task="other")
    assert token_hash(a) == token_hash(b) != token_hash(c)
    assert [g.trajectories for g in distinct([group_of(a, b), group_of(b), group_of(c), group_of(d)])] == [
        (a,),
        (c,),
        (d,),
    ]


def test_groups_that_teach(some: Callable[..., Group]) -> None:
    groups = [some(1, 1), some(1, 0), some(1), some(3, 0), some(0.1, 0.1, 0.1), some(1, 0, None)]
    assert values(with_variance(groups)) == [[1, 0], [3, 0], [1, 0]]
    assert values(most_uncertain(groups, 0.25)) == [[1, 0], [3, 0]]
    assert values(most_uncertain(groups, 0.01)) == [[3, 0]]
    assert most_uncertain(groups, 1.0) == groups
    for share in (0, 1.5):
        with pytest.raises(UsageError, match="share of groups"):
            most_uncertain(groups, share)


def test_best_against_worst(some: Callable[..., Group]) -> None:
    groups = [some(0.5, 1, 0, None, 1), some(1, 1), some(1), some(None), some(0.3, 0.2)]
    pairs = best_and_worst(groups)
    assert [(p.chosen, p.rejected, p.level) for p in pairs] == [
        (groups[0].trajectories[1], groups[0].trajectories[2], "trajectory"),
        (groups[4].trajectories[0], groups[4].trajectories[1], "trajectory"),
    ]
    assert [p.margin for p in pairs] == [1, pytest.approx(0.1)]
    assert len(best_and_worst(groups, margin=0.5)) == 1


def test_all_pairs(some: Callable[..., Group]) -> None:
    groups = [some(0, 1, 0.5, 1)]
    first, second, third, fourth = groups[0].trajectories
    pairs = [(p.chosen, p.rejected) for p in all_pairs(groups)]
    assert pairs == [(second, first), (fourth, first), (second, third), (fourth, third), (third, first)]
    assert len(all_pairs(groups, margin=0.6)) == 2
    assert [(p.chosen, p.rejected) for p in all_pairs(groups, limit=1)] == [(second, first)]
    assert all_pairs([some(1, 1)], margin=-1) == []


def test_shares_of_a_mixture_are_exact() -> None:
    mixture = DatasetMixture(datasets={"a": range(7), "b": range(100, 104)}, weights={"a": 3, "b": 1}, seed=5)
    names = [name for name, _ in mixture.named(0, 2 * BLOCK)]
    assert names[:BLOCK].count("b") == names[BLOCK:].count("b") == BLOCK // 4
    assert 0 < names[:40].count("b") < 25


def test_every_item_comes_once_an_epoch() -> None:
    mixture = DatasetMixture(datasets={"a": range(7), "b": range(100, 104)}, weights={"a": 2, "b": 1})
    drawn = mixture.draw(0, 1100)
    own = [item for item in drawn if item < 100]
    epochs = [own[i : i + 7] for i in range(0, len(own) - 7, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 10


def test_a_mixture_is_a_function_of_the_step() -> None:
    def make(seed: int) -> DatasetMixture[int]:
        return DatasetMixture(
            datasets={"a": range(50), "b": range(100, 150)}, weights={"a": 0.5, "b": 0.5}, seed=seed
        )

    whole = make(1).draw(0, 96)
    assert [item for step in (2, 0, 1) for item in make(1).draw(step, 32)] == whole[64:] + whole[:64]
    assert make(2).draw(0, 96) != whole


def test_shares_are_rounded_by_largest_remainder() -> None:
    third: DatasetMixture[int] = DatasetMixture(
        datasets={name: [0] for name in "abc"}, weights=dict.fromkeys("abc", 1.0)
    )
    names = [name for name, _ in third.named(0, BLOCK)]
    assert [names.count(name) for name in "abc"] == [334, 333, 333]


def test_mixtures_are_checked() -> None:
    with pytest.raises(UsageError, match="datasets and weights"):
        DatasetMixture(datasets={"a": [1]}, weights={"b": 1})
    with pytest.raises(UsageError, match="datasets and weights"):
        DatasetMixture[int](datasets={}, weights={})
    with pytest.raises(DataError, match="items of the dataset a: got none"):
        DatasetMixture[int](datasets={"a": []}, weights={"a": 1})
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="finite numbers above 0"):
            DatasetMixture(datasets={"a": [1]}, weights={"a": weight})
    with pytest.raises(UsageError, match="1/1000"):
        DatasetMixture(datasets={"a": [1], "b": [2]}, weights={"a": 1, "b": 1e-6})


def test_what_a_limit_cut_is_left_out(some: Callable[..., Group]) -> None:
    group = some(1, 0, 0, None)
    first, cut, *rest = group.trajectories
    given = replace(group, trajectories=(first, replace(cut, stop=Stop.MAX_TURNS), *rest))
    assert values(without_truncated([given])) == [[1, 0]]
    assert without_truncated([replace(group, trajectories=(given.trajectories[1],))]) == []
