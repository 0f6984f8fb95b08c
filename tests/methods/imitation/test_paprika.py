"""Paprika: which episodes are paired, what the loss compares, and which kind of tasks comes next."""

import pytest

from quintain.methods.imitation.paprika import best_against_worse, pay_solved
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Group


def group(*lived: tuple[bool, int], value: float = 0.4) -> Group:
    (found,) = record_cases(
        [Lived(task=0, value=value, is_success=solved, num_turns=turns) for solved, turns in lived]
    )
    return found


@pytest.mark.parametrize("lived", [[(False, 1), (False, 2)], [(True, 2), (True, 2)]])
def test_without_success_or_difference_there_is_no_pair(lived: list[tuple[bool, int]]) -> None:
    assert best_against_worse(group(*lived), 4) == []


def test_a_lucky_guess_is_no_better_where_short_ones_are_not_preferred() -> None:
    lived = group((True, 5), (True, 1), (False, 2))
    assert [len(p.rejected.turns) for p in best_against_worse(lived, 4, prefers_short=False)] == [2]
    assert sorted(len(p.rejected.turns) for p in best_against_worse(lived, 4)) == [2, 5]


def test_success_alone_counts() -> None:
    assert pay_solved([group((True, 1), (False, 1))])[0].returns == [1.0, 0.0]
