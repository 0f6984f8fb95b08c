"""Matched controls: what moves, what stays, and what is refused."""

from collections import Counter

import numpy as np
import pytest

from quintain.credit_lab.permute import (
    derange,
    permute,
)
from quintain.errors import UsageError


def test_a_derangement_leaves_nothing_in_place_and_each_is_as_likely() -> None:
    seen = Counter(tuple(derange(4, seed)) for seed in range(1800))
    assert all(place != number for order in seen for place, number in enumerate(order))
    assert len(seen) == 9, "there are nine derangements of four"
    assert min(seen.values()) > 140 and max(seen.values()) < 260
    with pytest.raises(UsageError, match="got a set of 1"):
        derange(1, 0)


def test_values_stay_within_their_sets_and_all_of_them_move() -> None:
    values = list(range(60))
    sets = [number % 3 for number in values]
    moved = permute(values, sets, seed=2)
    assert sorted(moved.values) == values and moved.num_stayed == moved.num_unchanged == 0
    assert all(new % 3 == old % 3 for old, new in zip(values, moved.values, strict=True))
    assert permute(values, sets, seed=2).values == moved.values != permute(values, sets, seed=3).values


def test_a_set_of_one_is_refused_or_kept_and_counted() -> None:
    with pytest.raises(UsageError, match="got 1 sets of one, first 'b'"):
        permute([1, 2, 3], "aab", seed=0)
    kept = permute([1, 2, 3], "aab", seed=0, alone="keep")
    assert kept.values == [2, 1, 3]
    assert (kept.num_alone, kept.num_stayed, kept.num_unchanged) == (1, 1, 1)
    assert kept.num_stayed == 1 and kept.share_unchanged == pytest.approx(1 / 3)


def test_equal_values_that_moved_count_as_unchanged_and_too_many_are_refused() -> None:
    moved = permute([7, 7, 7, 1], seed=0)
    assert moved.num_stayed == 0 and moved.num_unchanged == 2
    with pytest.raises(UsageError, match="got 50% as they were; at most 20%"):
        permute([7, 7, 7, 1], seed=0, most_unchanged=0.2)
    arrays = permute([np.ones(2), np.ones(2)], seed=0)
    assert arrays.num_unchanged == 2
    with pytest.raises(UsageError, match="got 1 keys"):
        permute([1, 2], "a", seed=0)


def test_a_permutation_that_may_leave_things_does_so_at_the_rate_of_chance() -> None:
    stayed = [permute(list(range(5)), seed=seed, moves_all=False).num_stayed for seed in range(600)]
    assert 0.85 < np.mean(stayed) < 1.15, "one place in expectation, whatever the size"
