"""A = min(exp((R - b) / β), cap): hard selection, as weights for `quintain.losses.imitation.imitate_weighted`.

Advantage-weighted regression (arXiv 1910.00177) with the group mean as the baseline b: what did better than its group
is imitated more, and nothing is pushed away. Best-of-N is the limit β → 0, up to the cap. Unit: trajectory. Singleton
rule: alone in its group → weight exp(0) = 1, which imitates it as it is. Weights are positive; for credit with a sign
use `group`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.credit.group import group_relative
from quintain.credit.layout import credit_of
from quintain.errors import UsageError
from quintain.types import Credit, Group


def exponential_weights(groups: Sequence[Group], *, temperature: float = 1.0, cap: float = 20.0) -> Credit:
    """Give every token min(exp((R - group mean) / `temperature`), `cap`); β is the temperature, in reward
    units.
    """
    if temperature <= 0:
        raise UsageError(f"temperature of the weights: got {temperature}; give a number above 0")
    base = group_relative(groups, std="none")
    limit = np.log(cap)
    weights = [
        [np.exp(np.minimum(array.astype(np.float64) / temperature, limit)) for array in turns]
        for turns in base.advantages
    ]
    kept = {name: value for name, value in base.metrics.items() if "advantage" not in name}
    return credit_of(base.trajectories, weights, metrics=kept)


def top_share(scores: Sequence[float], share: float) -> list[bool]:
    """Return which of `scores` are among the highest `share` of them; those that are equal stay or go together.

    Whoever ties with one that is too many is left out, and where the highest are too many already, they alone are kept.
    Where all are equal nothing is above anything else, and none is kept.

    Example: 1, 0, 0, 0 with a share of .5 keep the first alone; 1, 1, 1, 0 with .25 keep all three ones.
    """
    if not 0 < share <= 1:
        raise UsageError(f"share of the highest to keep: got {share}; give one above 0, 1 at most")
    if len(set(scores)) < 2:
        return [False] * len(scores)
    most = max(1, round(share * len(scores)))
    levels = sorted(set(scores), reverse=True)
    fitting = [level for level in levels if sum(score >= level for score in scores) <= most]
    cut = fitting[-1] if fitting else levels[0]
    return [score >= cut for score in scores]


def in_window(
    logprobs: Sequence[Sequence[NDArray[np.floating]]], low: float, high: float
) -> list[list[bool]]:
    """Return which turns are as likely as `low` to `high` per token, geometric mean: ``[trajectory][turn]``.

    A turn whose perplexity is from 1/`high` to 1/`low` is one that the policy neither knows nor would never say, which
    is what WebRL (arXiv 2411.02337) takes from its replay buffer. Example: .97, .8, .4 with .5 and .95 → no, yes, no.
    """
    return [
        [bool(len(turn)) and low <= float(np.exp(np.mean(turn, dtype=np.float64))) <= high for turn in own]
        for own in logprobs
    ]
