from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.credit.group import group_process, group_relative, leave_one_out, normalise
from quintain.errors import InvariantError, UsageError
from quintain.types import Credit, Failure, Group, Score, Trajectory

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def firsts(credit: Credit) -> list[float]:
    """The advantage of the first token of each trajectory."""
    return [float(turns[0][0]) for turns in credit.advantages]


@pytest.mark.parametrize(
    ("std", "epsilon", "expected"),
    [("unbiased", 1e-4, 0.86588), ("biased", 0.0, 1.0), ("none", 0.0, 0.5), ("unbiased", 0.0, 0.8660254)],
)
def test_fixture_of_the_cards(outcomes: MakeGroup, std: str, epsilon: float, expected: float) -> None:
    credit = group_relative([outcomes(1, 0, 0, 1)], std=std, epsilon=epsilon)  # type: ignore[arg-type]
    assert firsts(credit) == pytest.approx([expected, -expected, -expected, expected], abs=5e-6)


def test_grpo_uses_the_unbiased_deviation_by_default(outcomes: MakeGroup) -> None:
    credit = group_relative([outcomes(1, 0, 0, 1, 0)])
    assert firsts(credit) == pytest.approx([1.0954, -0.7303, -0.7303, 1.0954, -0.7303], abs=1e-4)
    assert credit.metrics["credit/groups"] == 1


def test_every_token_of_every_turn_gets_it(trajectory: Make, group: MakeGroup) -> None:
    credit = group_relative([group(trajectory([0, 1], tokens=[3, 1]), trajectory([0, 0]))], std="none")
    assert [a.tolist() for a in credit.advantages[0]] == [[0.5, 0.5, 0.5], [0.5]]
    assert credit.advantages[0][0].dtype == np.float32
    assert credit.returns is None


def test_leave_one_out(outcomes: MakeGroup) -> None:
    assert firsts(leave_one_out([outcomes(1, 0, 0, 1)])) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    loop = leave_one_out([outcomes(1, 0, 0, 1, 0.5, 0)])
    assert firsts(loop) == pytest.approx([0.7, -0.5, -0.5, 0.7, 0.1, -0.5])


@pytest.mark.parametrize("method", [group_relative, leave_one_out, group_process])
def test_alone_and_equal_get_exactly_zero(outcomes: MakeGroup, method: Callable[..., Credit]) -> None:
    assert firsts(method([outcomes(3.0)])) == [0.0]
    assert firsts(method([outcomes(0.1, 0.1, 0.1)])) == [0.0, 0.0, 0.0]
    assert firsts(method([outcomes(1, 1, 1 + 1e-9)])) == [0.0, 0.0, 0.0]


def test_zero_variance_and_singletons_are_counted(
    outcomes: MakeGroup, trajectory: Make, group: MakeGroup
) -> None:
    alone, mixed = (
        group(trajectory([1], task="b")),
        group(trajectory([1], task="c"), trajectory([0], task="c")),
    )
    metrics = group_relative([outcomes(1, 1), alone, mixed, group(trajectory([2], task="d"))]).metrics
    assert metrics["credit/zero_variance_groups"] == 0.75
    assert metrics["credit/singleton_groups"] == 0.5
    assert metrics["credit/groups"] == 4


def test_failures_are_not_zeros(trajectory: Make, group: MakeGroup, failure: Failure) -> None:
    credit = group_relative(
        [group(trajectory([1]), trajectory([0], outcome=failure), trajectory([0]))], std="none"
    )
    assert firsts(credit) == [0.5, -0.5]
    assert len(credit.trajectories) == 2


def test_nothing_scored_is_an_empty_credit(trajectory: Make, group: MakeGroup, failure: Failure) -> None:
    credit = group_relative([group(trajectory([1], outcome=failure))])
    assert credit.trajectories == () and credit.advantages == ()
    assert credit.metrics["credit/advantage_std"] == 0 and credit.metrics["credit/zero_variance_groups"] == 0


def test_groups_are_ids_and_not_places(trajectory: Make, group: MakeGroup) -> None:
    rows = [
        trajectory([reward], group=name)
        for reward, name in [(1.0, "a"), (5.0, "b"), (0.0, "a"), (9.0, "b"), (2.0, "b"), (3.0, "a")]
    ]
    direct = group_relative([group(*(r for r in rows if r.group == name)) for name in "ab"])
    mixed = group_relative([group(*rows)])
    of = {id(t): x for t, x in zip(direct.trajectories, firsts(direct), strict=True)}
    assert firsts(mixed) == [of[id(t)] for t in mixed.trajectories]


def test_one_task_drawn_twice_is_two_groups(trajectory: Make, group: MakeGroup) -> None:
    rows = [trajectory([r], task="t", group=g) for r, g in [(1.0, "a"), (0.0, "a"), (8.0, "b"), (8.0, "b")]]
    assert firsts(group_relative([group(*rows)], std="none")) == [0.5, -0.5, 0.0, 0.0]


def test_one_id_for_two_tasks_is_refused(trajectory: Make, group: MakeGroup) -> None:
    with pytest.raises(InvariantError, match="own group id"):
        group_relative([group(trajectory([1], task="a", group="g"), trajectory([1], task="b", group="g"))])


def test_a_number_that_is_not_finite_never_becomes_credit(trajectory: Make, group: MakeGroup) -> None:
    bad = trajectory([1.0], outcome=Score(value=float("nan"), is_success=False))
    with pytest.raises(InvariantError, match="finite Score"):
        group_relative([group(bad, trajectory([1.0]))])
    with pytest.raises(InvariantError, match="record a Failure"):
        group_process([group(trajectory([float("inf")], outcome=Score(value=0, is_success=False)))])


def test_unknown_deviation_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'biased'"):
        normalise([1.0], std="biasd")  # type: ignore[arg-type]


def test_process_supervision_sums_what_is_still_to_come(trajectory: Make, group: MakeGroup) -> None:
    credit = group_process([group(trajectory([1, 0]), trajectory([0, 1]))], std="biased", epsilon=0)
    assert [[float(a[0]) for a in turns] for turns in credit.advantages] == [[0, -1], [0, 1]]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_group_advantages_sum_to_zero(values: Sequence[float]) -> None:
    for std in ("unbiased", "biased", "none"):
        assert sum(normalise(values, std=std)) == pytest.approx(0, abs=1e-6)  # type: ignore[arg-type]
