"""r = (1/σ) Σ_m (s_m - μ_m)/σ_m: turn rewards out of the scores of several reward models (arXiv 1706.03741, section 2.2).

Comparisons say neither where zero is nor how large one is, so each member is brought to mean 0 and deviation 1 before
the mean of them is taken, and that mean to deviation 1 again. Mean and deviation are those over the turns that people
compared, not over what the policy does now: a normaliser that followed the policy would hide whether it gets better.
Unit: turn.
"""

from collections.abc import Sequence
from math import floor, log1p

import numpy as np

from quintain.errors import UsageError

Scores = Sequence[Sequence[float]]
"""[member] → [score of each turn]"""


def ensemble_rewards(scores: Scores, compared: Scores) -> list[float]:
    """Return the reward of each turn, from the `scores` of all members of it and of the turns that were `compared`.

    A member whose scores of the compared turns are all the same counts 0. Example: one member, 0 and 2 compared: 3 → 2.

    Raises:
        UsageError: there is no member, or no turn was compared.
    """
    known = np.asarray(compared, np.float64)
    if known.ndim != 2 or not known.size:
        raise UsageError(
            f"scores of the compared turns: got an array of the shape {known.shape}; give [members, turns]"
        )
    middle, spread = known.mean(1, keepdims=True), known.std(1, keepdims=True)
    scale = np.where(spread > 0, spread, np.inf)
    whole = ((known - middle) / scale).mean(0).std()
    found = ((np.asarray(scores, np.float64) - middle) / scale).mean(0)
    return (found / whole if whole > 0 else found).tolist()


def num_queries(step: int, *, total: int, first: int, steps: int) -> int:
    """Return how many comparisons are asked for at `step` of `steps`, from 1: `first`, then fewer and fewer of `total`.

    Their rate falls as 1/step (the paper's falls as a hyperbola of time, too). Example: total 100, first 25, steps 10
    → 25, 22, 13, 9, 7, 6, …
    """
    if step <= 1 or steps < 2:
        return (first if steps > 1 else total) if step == 1 else 0

    def until(count: int) -> int:
        return first + floor((total - first) * log1p(count - 1) / log1p(steps - 1) + 1e-9)

    return until(step) - until(step - 1)


def most_disputed(scores: Scores, count: int) -> list[int]:
    """Return the places of the `count` candidates on whose preference the members differ most, in order (section 2.2.4).

    `scores` are the differences of both sides' sums, [member][candidate]; what varies is the predicted preference
    σ(difference). Of equal variances the first stay.
    """
    differences = np.asarray(scores, np.float64)
    variances = (0.5 * (1 + np.tanh(differences / 2))).var(0)
    return sorted(np.argsort(-variances, kind="stable")[:count].tolist())
