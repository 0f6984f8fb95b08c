"""Paprika: which episodes are paired, what the loss compares, and which kind of tasks comes next."""

from dataclasses import replace

import pytest

from quintain.data.pairs import Pairs
from quintain.methods.imitation.paprika import Config, best_against_worse, method, pay_solved
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Group, Stop


def group(*lived: tuple[bool, int], value: float = 0.4) -> Group:
    (found,) = record_cases(
        [Lived(task=0, value=value, is_success=solved, num_turns=turns) for solved, turns in lived]
    )
    return found


@pytest.mark.parametrize("lived", [[(False, 1), (False, 2)], [(True, 2), (True, 2)]])
def test_without_success_or_difference_there_is_no_pair(lived: list[tuple[bool, int]]) -> None:
    assert not best_against_worse(group(*lived), 4)


def test_a_lucky_guess_is_no_better_where_short_ones_are_not_preferred() -> None:
    lived = group((True, 5), (True, 1), (False, 2))
    assert [len(p.rejected.turns) for p in best_against_worse(lived, 4, prefers_short=False)] == [2]
    assert sorted(len(p.rejected.turns) for p in best_against_worse(lived, 4)) == [2, 5]


def test_what_cannot_be_learned_from_is_refused_before_it_is_drawn_from() -> None:
    lived = group((True, 1), *[(False, 1)] * 4)
    best, cut, same, *others = lived.trajectories
    cut, same = replace(cut, stop=Stop.MAX_TOKENS), replace(same, turns=best.turns)
    found = best_against_worse(replace(lived, trajectories=(best, cut, same, *others)), 2)
    assert {pair.rejected.index for pair in found} == {3, 4}, "a limit of tokens is no failure of judgement"
    assert found.refused == {"identical": 1, "cut": 1}
    built = method(Config(pairs=2)).build([replace(lived, trajectories=(best, cut, same, *others)), lived])
    assert isinstance(built, Pairs) and (len(built), built.refused) == (4, {"identical": 1, "cut": 1})


def test_success_alone_counts() -> None:
    assert pay_solved([group((True, 1), (False, 1))])[0].returns == [1.0, 0.0]
