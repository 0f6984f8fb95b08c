from collections.abc import Callable
from dataclasses import replace

import pytest

from quintain.data.filters import (
    best_of_group,
    distinct,
    keep_solved_between,
    most_uncertain,
    successful,
    token_hash,
    whole,
    without_truncated,
)
from quintain.data.pairs import best_and_worst
from quintain.errors import UsageError
from quintain.types import Failure, Group, Score, Stop, Trajectory, flatten_scored

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
    assert len(flatten_scored(groups)) == 5


def test_only_whole_groups(some: Callable[..., Group]) -> None:
    groups = [some(1.0, 0), some(1.0, 0, None), some(None), some(0.5)]
    assert whole(groups) == [groups[0], groups[3]]
    assert whole([Group(task=groups[0].task, trajectories=())]) == []


def test_groups_by_the_share_that_was_solved(some: Callable[..., Group]) -> None:
    groups = [some(1.0, 1.0), some(1.0, 0, None), some(0, 0), some(None)]
    assert values(keep_solved_between(groups, 0.0, 0.9)) == [[1.0, 0], [0, 0]]
    assert values(keep_solved_between(groups, 0.5, 1.0)) == [[1.0, 1.0], [1.0, 0]]
    with pytest.raises(UsageError, match=r"solved shares to keep: got 0.9 to 0.1"):
        keep_solved_between(groups, 0.9, 0.1)


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


def test_what_a_limit_cut_is_left_out(some: Callable[..., Group]) -> None:
    group = some(1, 0, 0, None)
    first, cut, *rest = group.trajectories
    given = replace(group, trajectories=(first, replace(cut, stop=Stop.CUT), *rest))
    assert values(without_truncated([given])) == [[1, 0]]
    out_of_turns = replace(group, trajectories=(first, replace(cut, stop=Stop.MAX_TURNS), *rest))
    assert values(without_truncated([out_of_turns])) == [[1, 0, 0]]
    assert without_truncated([replace(group, trajectories=(given.trajectories[1],))]) == []
