"""Intervals and tests of paired differences, several strata, rates and doses, and what many arms say at once.

Distributions and tests are SciPy's. What SciPy lacks is here: the t
interval of a mean over strata, and Dunnett's bound in an additive model of arm and seed. Tests are one-sided, for an
effect above 0: turn the sign of what is to fall.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from scipy import stats as scipy_stats

from quintain.errors import DataError

stats: Any = scipy_stats  # without types of its own
LEVEL = 0.95
NUM_FLIPS = 9_999
"""Sign patterns of the flip test where there are too many to list all."""
SMALLEST_P = 1e-16
"""p-values are kept this far from 0 and 1 where they become normal scores."""

Values = Sequence[float]
Strata = Sequence[Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean with a two-sided t interval: ``Estimate(mean=0.5, low=0.1, high=0.9, num=8)``."""

    mean: float
    low: float
    high: float
    num: int
    """values that it is of"""

    def is_within(self, tolerance: float) -> bool:
        """Return whether the whole interval is inside ± `tolerance`; at a level of .9 this is TOST at .05."""
        return -tolerance < self.low and self.high < tolerance


def strata_of(values: Strata) -> list[NDArray[np.float64]]:
    """Return `values` as arrays; each must hold finite numbers, and one of them two or more."""
    arrays = [np.asarray(part, dtype=np.float64) for part in values]
    if not arrays or any(part.size == 0 or not np.isfinite(part).all() for part in arrays):
        raise DataError("an effect needs finite values: got none, or one that is not finite; see the results")
    if sum(part.size - 1 for part in arrays) < 1:
        raise DataError("an effect needs two values or more: got 1; measure more replications")
    return arrays


def moments(values: Strata) -> tuple[float, float, int]:
    """Return the mean over strata of equal weight, its standard error and the degrees of freedom.

    The variance is pooled within strata: what differs from stratum to stratum is not noise of the mean.
    """
    arrays = strata_of(values)
    freedom = sum(part.size - 1 for part in arrays)
    variance = sum(float(((part - part.mean()) ** 2).sum()) for part in arrays) / freedom
    error = sqrt(variance * sum(1 / part.size for part in arrays)) / len(arrays)
    mean = float(np.mean([part.mean() for part in arrays]))
    # Differences that are all the same but for rounding have no spread.
    return mean, error if error > 1e-12 * abs(mean) else 0.0, freedom


def estimate(values: Strata, level: float = LEVEL) -> Estimate:
    """Return the mean over strata with its two-sided t interval at `level`."""
    mean, error, freedom = moments(values)
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * error
    return Estimate(mean=mean, low=mean - half, high=mean + half, num=sum(map(len, values)))


def t_test(values: Values) -> float:
    """Return the p-value of the one-sided t test that the mean of paired differences is above 0."""
    mean, error, freedom = moments([values])
    return float(special.stdtr(freedom, -mean / error)) if error else float(mean <= 0)


def flip_test(values: Values, seed: int = 0) -> float:
    """Return the one-sided p-value of the sign-flip test: all patterns up to 13 values, 9,999 random ones above."""
    return _flip_test(tuple(map(float, values)), seed)


@cache
def _flip_test(values: tuple[float, ...], seed: int) -> float:
    """Return what `flip_test` does; the same values are asked for by several tables."""
    array = strata_of([values])[0]
    if not array.any():
        return 1.0
    found = stats.permutation_test(
        (array,),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        alternative="greater",
        vectorized=True,
        n_resamples=NUM_FLIPS,
        batch=1_000,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def smallest_flip(num: int) -> float:
    """Return the smallest p-value that the sign-flip test of `num` values can have."""
    return max(2.0**-num, 1 / (NUM_FLIPS + 1))


def wilcoxon_test(values: Values) -> float:
    """Return the one-sided p-value of Wilcoxon's signed-rank test."""
    array = strata_of([values])[0]
    return float(stats.wilcoxon(array, alternative="greater").pvalue) if array.any() else 1.0


def mcnemar_test(values: Values) -> float:
    """Return the exact one-sided p-value of McNemar's test on differences of two outcomes of 0 or 1."""
    array = strata_of([values])[0]
    if not np.isin(array, (-1.0, 0.0, 1.0)).all():
        raise DataError(
            "McNemar's test needs outcomes of 0 or 1: got others; name wilcoxon, or leave test out"
        )
    gained, lost = int((array > 0).sum()), int((array < 0).sum())
    return (
        float(stats.binomtest(gained, gained + lost, alternative="greater").pvalue) if gained + lost else 1.0
    )


def stouffer(p_values: Values) -> float:
    """Return the p-value of independent one-sided `p_values` together: their normal scores, added."""
    if not p_values:
        raise DataError("combining p-values needs one or more: got none; measure a block")
    kept = np.clip(np.asarray(p_values, dtype=np.float64), SMALLEST_P, 1 - SMALLEST_P)
    return float(stats.combine_pvalues(kept, method="stouffer").pvalue)


def false_discovery(p_values: Values) -> list[float]:
    """Return `p_values` corrected for their number by Benjamini and Hochberg, in the same order."""
    return [float(p) for p in stats.false_discovery_control(p_values)] if p_values else []


def clopper_pearson(num_hits: int, num: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the exact two-sided interval of a rate. Example: 0 of 300 at .95 → (0, .0122)."""
    if not 0 <= num_hits <= num or num == 0:
        raise DataError(
            f"a rate needs 0 <= hits <= trials and a trial: got {num_hits} of {num}; check the counts"
        )
    found = stats.binomtest(num_hits, num).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)


def trend_test(rows: Sequence[Values]) -> float:
    """Return the p-value of Page's test that doses raise the values: [replications, doses in rising order]."""
    return float(stats.page_trend_test(np.asarray(rows, dtype=np.float64)).pvalue)


def rank_correlation(first: Values, second: Values) -> float:
    """Return Spearman's rank correlation; nan where one side never varies."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return float("nan")
    return float(stats.spearmanr(first, second).statistic)


@cache
def dunnett_critical(num_arms: int, freedom: int, level: float = LEVEL) -> float:
    """Return the one-sided critical value for `num_arms` comparisons with one baseline (Dunnett 1955).

    The arms' t statistics share the baseline (correlation ½) and the residual with `freedom` degrees; the chance that
    all stay below the value is `level`. It is integrated over the baseline's deviation and the residual's, for SciPy
    takes samples of arms and no residual of a model.
    """
    if num_arms < 1 or freedom < 1:
        raise DataError(
            f"Dunnett's bound needs an arm and a degree of freedom: got {num_arms} and {freedom}; add seeds"
        )
    shares, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    nodes, mass = np.polynomial.legendre.leggauss(64)
    spreads = np.sqrt(stats.chi2.ppf((nodes + 1) / 2, freedom) / freedom)  # equal mass under the chi

    def coverage(bound: float) -> float:
        below = stats.norm.cdf(shares[None, :] + sqrt(2) * bound * spreads[:, None]) ** num_arms
        return float((mass / 2) @ (below @ weights))

    return float(optimize.root_scalar(lambda bound: coverage(bound) - level, bracket=(-10.0, 500.0)).root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An arm's difference from the baseline: ``Bound(mean=0.07, low=0.01, high=0.13, num=10, p_value=0.02)``."""

    mean: float
    low: float
    """one-sided lower bound that holds for all arms at once"""
    high: float
    """one-sided upper bound that holds for all arms at once"""
    num: int
    """seeds"""
    p_value: float
    """one-sided, of this arm alone"""
    error: float
    """standard error of the difference"""
    critical: float
    """how many of these the bounds are away"""
    freedom: int

    def power(self, difference: float) -> float:
        """Return the chance that a true `difference` below 0 would have been found: the upper bound below 0 as well."""
        if not self.error:
            return 1.0
        return float(stats.nct.cdf(-self.critical, self.freedom, difference / self.error))


def dunnett_bounds(
    arms: Mapping[str, Values], baseline: str, level: float = LEVEL, num_compared: int = 0
) -> dict[str, Bound]:
    """Return the bounds of every arm against `baseline`; `arms` maps a name to its values, seed by seed.

    The model is additive, value = arm + seed + residual, with one residual variance for all arms. Bounds hold for
    `num_compared` arms at once where that is more than are here: those that stopped earlier, or are yet to come.
    """
    names = [name for name in arms if name != baseline]
    table = np.array([arms[baseline], *(arms[name] for name in names)], dtype=np.float64)
    num_arms, num = table.shape
    if num_arms < 2 or num < 2:
        raise DataError(f"a league needs two arms and two seeds: got {num_arms} and {num}; run more of them")
    residual = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    freedom = (num_arms - 1) * (num - 1)
    error = sqrt(float((residual**2).sum()) / freedom * 2 / num)
    critical = dunnett_critical(max(num_arms - 1, num_compared), freedom, level)
    bounds: dict[str, Bound] = {}
    for name, mean in zip(names, table[1:].mean(axis=1) - table[0].mean(), strict=True):
        ratio = float(mean) / error if error else inf * float(np.sign(mean)) if mean else 0.0
        bounds[name] = Bound(
            mean=float(mean),
            low=float(mean) - critical * error,
            high=float(mean) + critical * error,
            num=num,
            p_value=float(special.stdtr(freedom, -ratio)),
            error=error,
            critical=critical,
            freedom=freedom,
        )
    return bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One of the places where a sequence of seeds may stop: ``Look(num=6, alpha=0.01)``."""

    num: int
    alpha: float


LOOKS = (Look(num=6, alpha=0.01), Look(num=10, alpha=0.015), Look(num=16, alpha=0.025))
"""Seeds after which a comparison may end, and the share of the error of .05 that is spent there."""


def looks(most: int) -> tuple[Look, ...]:
    """Return the places to stop for a sequence of at most `most` seeds."""
    found = tuple(look for look in LOOKS if look.num <= most)
    if not found or found[-1].num != most:
        places = ", ".join(str(look.num) for look in LOOKS)
        raise DataError(f"seeds of a sequence: got {most}; choose from {places}")
    return found
