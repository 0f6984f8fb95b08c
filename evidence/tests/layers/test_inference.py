"""Intervals cover what they say and tests err as seldom as they say, by simulation; and cases worked by hand."""

import numpy as np
import pytest

from quintain.errors import DataError
from quintain_evidence.layers.inference import (
    LOOKS,
    Estimate,
    clopper_pearson,
    dunnett_bounds,
    dunnett_critical,
    estimate,
    false_discovery,
    flip_test,
    looks,
    mcnemar_test,
    rank_correlation,
    smallest_flip,
    stouffer,
    t_test,
    trend_test,
    wilcoxon_test,
)

NUM = 1_000


def draws(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(("strata", "size"), [(1, 6), (1, 10), (3, 4)])
def test_t_intervals_cover_95_percent(strata: int, size: int) -> None:
    offsets = np.arange(strata)[:, None] * 10.0
    hits = [
        found.low <= offsets.mean() <= found.high
        for found in (estimate((part + offsets).tolist()) for part in draws(NUM, strata, size))
    ]
    assert 0.93 <= np.mean(hits) <= 0.97


def test_clopper_pearson_covers_at_least_95_percent() -> None:
    counts = np.random.default_rng(0).binomial(300, 0.02, NUM)
    known = {count: clopper_pearson(int(count), 300) for count in set(counts.tolist())}
    assert 0.95 <= np.mean([known[c][0] <= 0.02 <= known[c][1] for c in counts.tolist()]) <= 0.99
    assert clopper_pearson(0, 300) == pytest.approx((0.0, 0.01222), abs=1e-5)
    with pytest.raises(DataError, match="got 4 of 3"):
        clopper_pearson(4, 3)


@pytest.mark.parametrize("num_arms", [1, 4])
def test_dunnett_bounds_hold_for_all_arms_at_once_in_95_percent(num_arms: int) -> None:
    seeds = draws(NUM, 1, 8, seed=1) * 3
    table = draws(NUM, num_arms + 1, 8) + seeds
    names = [f"arm{k}" for k in range(num_arms)]
    hits, ups = [], []
    for rows in table.tolist():
        found = dunnett_bounds(dict(zip(["base", *names], rows, strict=True)), "base")
        hits.append(all(bound.low <= 0 for bound in found.values()))
        ups.append(all(bound.high >= 0 for bound in found.values()))
    assert 0.93 <= np.mean(hits) <= 0.97
    assert 0.93 <= np.mean(ups) <= 0.97


def test_dunnett_critical_values_are_those_of_the_table() -> None:
    assert dunnett_critical(1, 18) == pytest.approx(1.734, abs=1e-3), "one arm is a t test"
    assert dunnett_critical(4, 20) == pytest.approx(2.30, abs=0.01)
    assert dunnett_critical(9, 60) == pytest.approx(2.48, abs=0.01)
    with pytest.raises(DataError, match="got 0 and 4"):
        dunnett_critical(0, 4)


def test_a_pooled_residual_is_that_of_the_additive_model() -> None:
    found = dunnett_bounds({"base": [0.0, 1.0, 2.0], "a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 2.6]}, "base")
    assert found["a"].mean == pytest.approx(1.0) and found["b"].mean == pytest.approx(0.2)
    # Residuals are ± (1, 1, -2) × (1, 1, -2) / 15: their squares add to .16, over 4 degrees of freedom.
    assert found["a"].low == pytest.approx(1 - dunnett_critical(2, 4) * np.sqrt(0.04 * 2 / 3))
    same = dunnett_bounds({"base": [0.0, 1.0], "a": [1.0, 2.0]}, "base")["a"]
    assert (same.low, same.high, same.p_value) == (1.0, 1.0, 0.0)
    with pytest.raises(DataError, match="got 2 and 1"):
        dunnett_bounds({"base": [0.0], "a": [1.0]}, "base")


def test_both_tests_err_in_five_percent_at_most() -> None:
    pairs = np.array([(t_test(part), flip_test(part)) for part in draws(400, 6).tolist()])
    by_t, by_flips = (pairs <= 0.05).mean(axis=0)
    assert 0.03 <= by_t <= 0.07 and 0.025 <= by_flips <= 0.06, "a flip test of six has steps of 1/64"
    assert (pairs.max(axis=1) <= 0.05).mean() <= 0.05


def test_a_sequence_of_seeds_errs_in_five_percent_at_most() -> None:
    assert sum(look.alpha for look in LOOKS) == pytest.approx(0.05)
    held = 0
    for part in draws(NUM, 16, seed=3).tolist():
        for look in LOOKS:
            if t_test(part[: look.num]) <= look.alpha:
                held += 1
                break
            if look is LOOKS[0] and np.mean(part[: look.num]) <= 0:
                break
    assert held / NUM <= 0.05


def test_an_effect_as_large_as_the_tolerance_is_called_absent_in_five_percent() -> None:
    for shift in (1.0, -1.0):
        found = [
            estimate([part], 0.9).is_within(1.0) for part in (draws(NUM, 10, seed=4) * 0.8 + shift).tolist()
        ]
        assert 0.03 <= np.mean(found) <= 0.065
    assert np.mean([estimate([part], 0.9).is_within(1.0) for part in draws(200, 10).tolist()]) > 0.8
    assert not Estimate(mean=0.0, low=-1.0, high=0.5, num=3).is_within(1.0), "the edge is outside"


def test_stouffer_keeps_the_error_of_independent_blocks() -> None:
    uniform = np.random.default_rng(0).uniform(size=(NUM, 3))
    assert 0.04 <= np.mean([stouffer(row) <= 0.05 for row in uniform.tolist()]) <= 0.06
    assert stouffer([0.05, 0.05]) == pytest.approx(0.01, abs=1e-4), "1.645 √2 = 2.326"
    assert stouffer([0.0, 1.0]) == pytest.approx(0.5, abs=0.01), (
        "certain either way: nothing is known, and nothing breaks"
    )
    with pytest.raises(DataError, match="got none"):
        stouffer([])


def test_false_discoveries_are_five_percent_of_what_is_called() -> None:
    rng, shares = np.random.default_rng(0), []
    for _ in range(400):
        p_values = np.concatenate([rng.uniform(size=15), rng.uniform(size=10) * 1e-3])
        called = np.array(false_discovery(p_values.tolist())) <= 0.05
        shares.append(called[:15].sum() / max(1, called.sum()))
    assert np.mean(shares) <= 0.05
    assert false_discovery([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert false_discovery([]) == []


def test_tests_by_hand() -> None:
    assert flip_test([1, 2, 3, 4, 5, 6]) == smallest_flip(6) == 1 / 64
    assert flip_test([0.0, 0.0]) == wilcoxon_test([0.0, 0.0]) == mcnemar_test([0.0, 0.0]) == 1.0
    assert t_test([1.0, 1.0, 1.0]) == 0.0 and t_test([0.0, 0.0]) == 1.0 and t_test([-1.0, -1.0]) == 1.0
    assert mcnemar_test([1.0] * 5 + [-1.0] + [0.0] * 9) == pytest.approx(7 / 64)
    assert wilcoxon_test([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1 / 32)
    assert trend_test([[1, 2, 3]] * 4) < 0.01 < trend_test([[3, 2, 1]] * 4)
    assert rank_correlation([1, 2, 3], [10, 20, 40]) == pytest.approx(1.0)
    assert np.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))
    with pytest.raises(DataError, match="outcomes of 0 or 1"):
        mcnemar_test([0.5, 1.0])
    with pytest.raises(DataError, match="not finite"):
        estimate([[1.0, float("nan")]])
    with pytest.raises(DataError, match="two values or more: got 1"):
        estimate([[1.0]])


def test_strata_differ_without_widening_the_interval() -> None:
    found = estimate([[0.0, 2.0], [100.0, 102.0]])
    assert found.mean == 51.0 and found.num == 4
    half = 4.302653 * np.sqrt(2 * (1 / 2 + 1 / 2)) / 2
    assert found.high - found.mean == pytest.approx(half, rel=1e-6)


def test_a_sequence_has_6_10_or_16_seeds() -> None:
    assert [look.num for look in looks(10)] == [6, 10]
    with pytest.raises(DataError, match="got 12; choose from 6, 10, 16"):
        looks(12)
