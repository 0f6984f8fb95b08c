"""How good a reward model is: agreement, calibration, its liking for length, and where several models disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError, ModelError
from quintain.types import Comparison

Scores = Sequence[Sequence[float]]
"""[comparison] → [score of each answer]"""
SAME = 1e-6
"""Difference of scores, as a part of their size, below which they are the same."""
NUM_BINS = 10


def refuse_constant(scores: Sequence[float], *, of: str) -> None:
    """Raise where a reward model gives all that it scored, which differs, the same score.

    Raises:
        ModelError: it does.
    """
    if len(scores) > 1 and np.ptp(scores) <= SAME * max(1.0, float(np.abs(scores).max())):
        raise ModelError(
            f"{of}: got the score {scores[0]:.4g} for all of {len(scores)} different answers, from which nothing can "
            "be learned; train it longer, or on answers that differ"
        )


def preferences(
    scores: Scores, comparisons: Sequence[Comparison]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return P(i above j) = σ(r_i - r_j) and whether it was said (1 or 0), of every pair that does not tie."""
    chance, said = list[float](), list[float]()
    for own, comparison in zip(scores, comparisons, strict=True):
        for (r, above), (s, below) in combinations(zip(own, comparison.ranks, strict=True), 2):
            if above != below:
                chance.append(0.5 * (1 + float(np.tanh((r - s) / 2))))
                said.append(float(above > below))
    return np.array(chance), np.array(said)


def agreement(scores: Scores, comparisons: Sequence[Comparison]) -> float:
    """Return the share of preferences that `scores` [comparison][answer] agree with; equal scores agree by a half.

    Raises:
        DataError: there is none but ties.
    """
    chance, said = _some(scores, comparisons)
    return float(np.where(chance == 0.5, 0.5, (chance > 0.5) == (said > 0.5)).mean())


def calibration_error(scores: Scores, comparisons: Sequence[Comparison]) -> float:
    """Return the expected calibration error: Σ_b n_b/n |mean P - share that came so| over ten bins of P (1706.04599).

    Each pair counts from the side that the model prefers, so that P is from .5 to 1. Example: P .9 thrice, of which
    two came so → |.9 - 2/3| = .2333.
    """
    chance, said = _some(scores, comparisons)
    sure = np.maximum(chance, 1 - chance)
    right = np.where(chance >= 0.5, said, 1 - said)
    bins = np.minimum(((sure - 0.5) * 2 * NUM_BINS).astype(int), NUM_BINS - 1)
    gaps = [abs(float((sure[bins == each] - right[bins == each]).sum())) for each in range(NUM_BINS)]
    return sum(gaps) / len(sure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """What is picked of several answers to each task: ``best_of(rewards, scores)``."""

    picked: float
    """mean reward of the answers that the scores put first"""
    mean: float
    """mean reward of all"""
    oracle: float
    """mean reward of the best ones"""

    @property
    def share(self) -> float:
        """The share of what could be gained that is: (picked - mean)/(oracle - mean); 0 where nothing could."""
        gain = self.oracle - self.mean
        return (self.picked - self.mean) / gain if gain > 0 else 0.0


def best_of(rewards: Scores, scores: Scores) -> Picks:
    """Return what the answer of the highest score of each task is worth, of equal ones the first (best-of-n).

    `rewards` and `scores` are [task][answer]. Example: rewards (0, 1), scores (.3, .9) → picked 1, mean .5, share 1. Of
    one answer a task all three are the same.

    Raises:
        DataError: there is no task, or one without answers.
    """
    if not rewards or not all(rewards):
        raise DataError(f"answers to pick from: got {len(rewards)} tasks, some without any; sample answers")
    picked = [own[int(np.argmax(said))] for own, said in zip(rewards, scores, strict=True)]
    return Picks(
        picked=float(np.mean(picked)),
        mean=float(np.mean([np.mean(own) for own in rewards])),
        oracle=float(np.mean([max(own) for own in rewards])),
    )


def length_correlation(scores: Sequence[float], lengths: Sequence[int]) -> float:
    """Return the correlation (Pearson) of scores with the sampled tokens of the answers; 0 where either is constant."""
    if len(scores) < 2 or np.ptp(scores) == 0 or np.ptp(lengths) == 0:
        return 0.0
    return float(np.corrcoef(scores, lengths)[0, 1])


def disagreement(scores: Sequence[Sequence[float]]) -> list[float]:
    """Return the variance over the members of an ensemble of `scores` [member][query], of each query.

    Of differences r₁ - r₂ as scores, it names the comparisons to ask for next (arXiv 1706.03741, section 2.2.4).

    Raises:
        DataError: there are not two members.
    """
    if len(scores) < 2:
        raise DataError(f"members of an ensemble: got {len(scores)}, which cannot disagree; give 2 or more")
    return np.asarray(scores, np.float64).var(axis=0).tolist()


def by_dispute(scores: Sequence[Sequence[float]]) -> list[int]:
    """Return the places of candidate comparisons, that on whose preference the members differ most first.

    `scores` [member][candidate] are differences r₁ - r₂; what varies is σ(r₁ - r₂), the preference that a member
    foretells (arXiv 1706.03741, section 2.2.4). Of equal variances the first stay first.
    """
    foretold = 0.5 * (1 + np.tanh(np.asarray(scores, np.float64) / 2))
    return np.argsort(-np.array(disagreement(foretold.tolist())), kind="stable").tolist()


def ensemble_rewards(scores: Sequence[Sequence[float]], compared: Sequence[Sequence[float]]) -> list[float]:
    """Return (1/σ) Σ_m (s_m - μ_m)/σ_m of `scores` [member][turn]: rewards out of the scores of several reward models.

    Comparisons say neither where zero is nor how large one is: each member is brought to mean 0 and deviation 1 first,
    then the mean of them to deviation 1 (arXiv 1706.03741, section 2.2.3 and 2.2). μ and σ are those of the turns that
    people `compared` [member][turn], not of what the policy does now: a normaliser that followed the policy would hide
    whether it gets better. A member that scores all of these alike counts 0. Example: one member that gave 0 and 2 to
    what was compared: 3 → 2.

    Raises:
        DataError: nothing was compared.
    """
    known = np.asarray(compared, np.float64)
    if known.ndim != 2 or not known.size:
        raise DataError(f"scores of compared turns: got the shape {known.shape}; give [members, turns]")
    middle, spread = known.mean(1, keepdims=True), known.std(1, keepdims=True)
    scale = np.where(spread > SAME * np.maximum(1.0, np.abs(middle)), spread, np.inf)
    whole = float(((known - middle) / scale).mean(0).std())
    found = ((np.asarray(scores, np.float64) - middle) / scale).mean(0)
    return (found / whole if whole > SAME else found).tolist()


def _some(
    scores: Scores, comparisons: Sequence[Comparison]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    chance, said = preferences(scores, comparisons)
    if not len(chance):
        raise DataError(f"{len(comparisons)} comparisons: got nothing but ties; compare answers that differ")
    return chance, said
