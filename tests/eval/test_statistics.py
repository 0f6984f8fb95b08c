"""Statistics against hand-worked numbers, limits and edges."""

from math import comb, nan

import numpy as np
import pytest

from quintain.errors import DataError
from quintain.eval.statistics import (
    bootstrap_mean,
    bootstrap_pairs,
    holm,
    mcnemar,
    pass_at_k,
    pass_hat_k,
    permute_pairs,
    wilson,
)


def test_wilson_by_hand() -> None:
    # z = 1.959964, z² = 3.841459; p = 0.8, n = 10:
    # centre (0.8 + 0.192073) / 1.384146 = 0.716740
    # half 1.959964 * sqrt(0.016 + 0.009604) / 1.384146 = 0.226576
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=1e-5)
    # p = 1/2 stays the centre; half 1.959964 * sqrt(0.0025 + 0.000096) / 1.038415 = 0.096168
    assert wilson(50, 100) == pytest.approx((0.403832, 0.596168), abs=1e-5)


def test_wilson_at_the_edges() -> None:
    # at rate 0 the upper end is z² / (n + z²)
    assert wilson(0, 10) == pytest.approx((0.0, 3.841459 / 13.841459), abs=1e-6)
    assert wilson(10, 10) == pytest.approx((1 - 3.841459 / 13.841459, 1.0), abs=1e-6)
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilson_is_symmetric_and_narrows() -> None:
    low, high = wilson(3, 20)
    assert wilson(17, 20) == pytest.approx((1 - high, 1 - low))
    wide, narrow = wilson(3, 20, level=0.99), wilson(300, 2000)
    assert wide[0] < low < narrow[0] < 0.15 < narrow[1] < high < wide[1]


@pytest.mark.parametrize("num", [64, 128, 512])
def test_wilson_covers_95_percent_of_the_rates(num: int) -> None:
    generator = np.random.default_rng(num)
    rates = generator.uniform(0.05, 0.95, 2_000)
    wins = generator.binomial(num, rates)
    known = {count: wilson(count, num) for count in set(wins.tolist())}
    hits = [known[k][0] <= rate <= known[k][1] for k, rate in zip(wins.tolist(), rates.tolist(), strict=True)]
    assert 0.93 <= np.mean(hits) <= 0.97


@pytest.mark.slow
def test_a_bootstrap_of_many_differences_covers_95_percent() -> None:
    differences = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], p=[0.05, 0.8, 0.15], size=(1_000, 100))
    found = [bootstrap_mean(own, num_resamples=400) for own in differences.tolist()]
    assert 0.93 <= np.mean([low <= 0.1 <= high for low, high in found]) <= 0.97


@pytest.mark.parametrize(("wins", "num"), [(-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(wins: int, num: int) -> None:
    with pytest.raises(DataError, match=f"got {wins} of {num}"):
        wilson(wins, num)


def test_pass_at_k_by_hand() -> None:
    # n = 4, c = 2, k = 2: 1 - C(2,2)/C(4,2) = 5/6; all of 2: C(2,2)/C(4,2) = 1/6
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6)
    assert pass_hat_k(4, 2, 2) == pytest.approx(1 / 6)


def test_pass_at_1_and_pass_hat_1_are_the_rate() -> None:
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_hat_k(10, 3, 1) == pytest.approx(0.3)


@pytest.mark.parametrize(("wins", "at_least_one", "every"), [(0, 0.0, 0.0), (5, 1.0, 1.0), (1, 0.6, 0.0)])
def test_pass_k_edges(wins: int, at_least_one: float, every: float) -> None:
    assert pass_at_k(5, wins, 3) == pytest.approx(at_least_one)
    assert pass_hat_k(5, wins, 3) == pytest.approx(every)


def test_pass_k_is_unbiased() -> None:
    # E over Binomial(5, p) of the estimator is 1 - (1 - p)³ and p³
    p = 0.35
    weights = [comb(5, c) * p**c * (1 - p) ** (5 - c) for c in range(6)]
    assert sum(w * pass_at_k(5, c, 3) for c, w in enumerate(weights)) == pytest.approx(1 - (1 - p) ** 3)
    assert sum(w * pass_hat_k(5, c, 3) for c, w in enumerate(weights)) == pytest.approx(p**3)


@pytest.mark.parametrize(("num", "wins", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1)])
def test_pass_k_refuses_what_cannot_be(num: int, wins: int, k: int) -> None:
    with pytest.raises(DataError, match=f"got k={k}"):
        pass_at_k(num, wins, k)
    with pytest.raises(DataError, match=f"got k={k}"):
        pass_hat_k(num, wins, k)


def test_bootstrap_of_a_constant_is_that_constant() -> None:
    assert bootstrap_mean([2.5] * 7) == (2.5, 2.5)


def test_bootstrap_of_two_values_reaches_both() -> None:
    # means are 0, 1/2, 1 with chances 1/4, 1/2, 1/4
    assert bootstrap_mean([0.0, 1.0]) == (0.0, 1.0)
    assert bootstrap_mean([0.0, 1.0], level=0.4) == (0.5, 0.5)


def test_bootstrap_agrees_with_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 400)
    low, high = bootstrap_mean(values.tolist())
    half = 1.959964 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_bootstrap_is_seeded() -> None:
    values = [0.0, 1.0, 5.0, 2.0, 2.2]
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


def test_bootstrap_in_pieces_keeps_its_number_of_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.eval.statistics.CHUNK", 10)
    low, high = bootstrap_mean([0.0, 1.0, 2.0], num_resamples=50)
    assert 0.0 <= low < 1.0 < high <= 2.0


@pytest.mark.parametrize("values", [[], [1.0, nan]])
def test_statistics_of_nothing_or_nan_are_errors(values: list[float]) -> None:
    with pytest.raises(DataError, match="finite"):
        bootstrap_mean(values)


def test_paired_bootstrap_by_hand() -> None:
    found = bootstrap_pairs([0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 2.0, 2.0])
    assert (found.mean, found.low, found.high, found.num) == (1.0, 1.0, 1.0, 4)


def test_pairing_narrows_the_interval() -> None:
    first = [float(x) for x in range(20)]
    second = [x + (0.5 if x % 2 else 0.7) for x in first]
    found = bootstrap_pairs(first, second)
    assert found.mean == pytest.approx(0.6)
    assert 0.5 < found.low < 0.6 < found.high < 0.7


def test_pairs_of_different_length_are_refused() -> None:
    with pytest.raises(DataError, match="got 1 and 2"):
        bootstrap_pairs([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("only_first", "only_second", "p_value"),
    [(1, 5, 14 / 64), (5, 1, 14 / 64), (0, 6, 2 / 64), (3, 3, 1.0), (0, 0, 1.0)],
)
def test_mcnemar_by_hand(only_first: int, only_second: int, p_value: float) -> None:
    assert mcnemar(only_first, only_second) == pytest.approx(p_value)


def test_mcnemar_refuses_negative_counts() -> None:
    with pytest.raises(DataError, match="got -1 and 2"):
        mcnemar(-1, 2)


def test_permutation_by_hand() -> None:
    # differences 1, 1, 1: sums ±3 come up in 2 of 8 sign patterns
    assert permute_pairs([0.0] * 3, [1.0] * 3) == pytest.approx(0.25)
    # differences 1, 2, -1, sum 2; |±1 ±2 ±1|: 4 0 2 2 2 2 0 4, so at least 2 in 6 of 8
    assert permute_pairs([0.0, 0.0, 1.0], [1.0, 2.0, 0.0]) == pytest.approx(0.75)
    assert permute_pairs([1.0, 2.0], [1.0, 2.0]) == 1.0


def test_permutation_of_binary_pairs_is_mcnemar() -> None:
    first, second = [1.0] + [0.0] * 9, [0.0] + [1.0] * 5 + [0.0] * 4
    assert permute_pairs(first, second) == pytest.approx(mcnemar(1, 5))


def test_permutation_at_random_agrees_with_the_exact_count() -> None:
    first, second = [1.0] * 4 + [0.0] * 11, [0.0] * 4 + [1.0] * 11
    assert permute_pairs(first, second) == pytest.approx(mcnemar(4, 11), abs=0.015)
    assert permute_pairs([0.0] * 40, [1.0] * 40, num_resamples=999) == pytest.approx(1 / 1000)


def test_holm_by_hand() -> None:
    assert holm((0.01, 0.04, 0.03)) == pytest.approx((0.03, 0.06, 0.06))
    assert holm((0.6, 0.9)) == (1.0, 1.0)
    assert holm((0.2,)) == (0.2,)
    assert holm(()) == ()
