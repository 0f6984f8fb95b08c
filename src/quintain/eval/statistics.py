"""Rates with intervals, and tests of a difference between paired results. Plain numbers in and out.

Intervals and tests are SciPy's, which is imported when the first of them is asked for. It has no pass@k, no pass^k and
no correction of Holm's; these are here. Intervals are two-sided at `level` (0.95). Resampling is seeded, so a number in
a report can be made again. A statistic of nothing is an error, except a rate's interval, which is then all of [0, 1].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError

LEVEL = 0.95
NUM_RESAMPLES = 10_000
CHUNK = 2_000_000
"""Resampled values held in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean paired difference with its interval: ``Difference(mean=0.5, low=0.0, high=1.0, num=2)``."""

    mean: float
    low: float
    high: float
    num: int
    """pairs"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredMean:
    """A mean with its clustered error: ``ClusteredMean(mean=0.5, low=-4.0, high=5.0, error=0.354, num_clusters=2)``."""

    mean: float
    low: float
    high: float
    error: float
    """standard error"""
    num_clusters: int


def clustered_mean(
    values: Sequence[float], clusters: Sequence[str], *, level: float = LEVEL
) -> ClusteredMean:
    """Return the mean of `values` with its sandwich error, where those of one of `clusters` may depend on each other.

    The error is the root of Σ (Σ of a cluster's deviations)² / num²; the interval is Student's with a degree of freedom
    less than there are clusters, two of them at least. Example: values 1, 1, 0, 0 in clusters a, a, b, b → .3536.
    """
    from scipy.stats import t

    array = check_values(values)
    _, places = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    num_clusters = int(places.max()) + 1
    if len(places) != array.size or num_clusters < 2:
        raise DataError(
            f"a clustered error needs a cluster of each value, two at least: got {array.size} values in {num_clusters} "
            f"clusters of {len(places)}; name what belongs together"
        )
    mean = float(array.mean())
    error = float(np.sqrt((np.bincount(places, weights=array - mean) ** 2).sum()) / array.size)
    reach = error * float(t.ppf((1 + level) / 2, num_clusters - 1))
    return ClusteredMean(
        mean=mean, low=mean - reach, high=mean + reach, error=error, num_clusters=num_clusters
    )


def wilson(num_success: int, num: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the score interval of a rate (Wilson 1927): sound at 0 and at 1, where mean ± 2 sd is not.

    Example: ``wilson(8, 10)`` is (0.490, 0.943). Assumes independent episodes.
    """
    if not 0 <= num_success <= num:
        raise DataError(
            f"a rate needs 0 <= successes <= episodes: got {num_success} of {num}; check the counts"
        )
    if num == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest

    interval = binomtest(num_success, num).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def pass_at_k(num: int, num_success: int, k: int) -> float:
    """Return the chance that at least one of `k` episodes of a task succeeds (unbiased; arXiv 2107.03374)."""
    check_k(num, num_success, k)
    return 1.0 - comb(num - num_success, k) / comb(num, k)


def pass_hat_k(num: int, num_success: int, k: int) -> float:
    """Return the chance that all of `k` episodes of a task succeed, pass^k (unbiased; arXiv 2406.12045)."""
    check_k(num, num_success, k)
    return comb(num_success, k) / comb(num, k)


def check_k(num: int, num_success: int, k: int) -> None:
    """Raise a `DataError` unless 1 <= k <= num and 0 <= num_success <= num."""
    if not (1 <= k <= num and 0 <= num_success <= num):
        raise DataError(
            f"pass@k needs 1 <= k <= episodes and 0 <= successes <= episodes: got k={k}, "
            f"{num_success} successes of {num}; sample at least k episodes of every task"
        )


def bootstrap_mean(
    values: Sequence[float], *, seed: int = 0, level: float = LEVEL, num_resamples: int = NUM_RESAMPLES
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of `values` [num]."""
    from scipy.stats import bootstrap

    array = check_values(values)
    if array.size == 1:  # all resamples are that value; SciPy wants two
        return float(array[0]), float(array[0])
    interval = bootstrap(
        (array,),
        np.mean,
        n_resamples=num_resamples,
        batch=max(1, CHUNK // array.size),
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def bootstrap_pairs(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, level: float = LEVEL
) -> Difference:
    """Return the mean of ``second - first`` over pairs with its percentile bootstrap interval."""
    differences = subtract_pairs(first, second)
    low, high = bootstrap_mean(differences.tolist(), seed=seed, level=level)
    return Difference(mean=float(differences.mean()), low=low, high=high, num=differences.size)


def mcnemar(num_only_first: int, num_only_second: int) -> float:
    """Return the exact two-sided p-value of McNemar's test, from the pairs that only one side solved.

    Example: ``mcnemar(1, 5)`` is 2 (1 + 6) / 2^6 = 0.21875. No such pair at all: 1.
    """
    from scipy.stats import binomtest

    if min(num_only_first, num_only_second) < 0:
        raise DataError(
            f"McNemar's test needs counts: got {num_only_first} and {num_only_second}; check the counts"
        )
    num = num_only_first + num_only_second
    return float(binomtest(num_only_first, num).pvalue) if num else 1.0


def permute_pairs(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, num_resamples: int = NUM_RESAMPLES
) -> float:
    """Return the two-sided p-value of the sign-flip test that the mean paired difference is 0.

    All sign patterns are counted where they are at most `num_resamples`; otherwise random ones, with the observed
    pattern counted as one of them so that the p-value is never 0.
    """
    from scipy.stats import permutation_test

    differences = subtract_pairs(first, second)
    moved = differences[differences != 0]
    if moved.size == 0:
        return 1.0
    found = permutation_test(
        (moved,),
        lambda values, axis: np.abs(values.mean(axis=axis)),
        permutation_type="samples",
        vectorized=True,
        n_resamples=num_resamples,
        batch=max(1, CHUNK // moved.size),
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return `p_values` corrected for their number (Holm 1979), in the same order.

    Example: ``holm((0.01, 0.04, 0.03))`` is (0.03, 0.06, 0.06).
    """
    corrected = [0.0] * len(p_values)
    running = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = running
    return tuple(corrected)


def subtract_pairs(first: Sequence[float], second: Sequence[float]) -> NDArray[np.float64]:
    """Return ``second - first``, [num]."""
    if len(first) != len(second):
        raise DataError(
            f"pairs need two lists of one length: got {len(first)} and {len(second)}; match them by task"
        )
    return check_values(second) - check_values(first)


def check_values(values: Sequence[float]) -> NDArray[np.float64]:
    """Return `values` as an array [num], which must hold something and nothing but finite numbers."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        what = "no value" if array.size == 0 else "a value that is not finite"
        raise DataError(f"a statistic needs finite values: got {what}; leave failures out before")
    return array
