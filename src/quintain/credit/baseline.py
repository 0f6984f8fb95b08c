"""A_i ← A_i - mean of what the other episodes of the batch were worth: a baseline without groups or critic.

REINFORCE with a baseline (Williams 1992): what other episodes returned does not depend on this one's actions, so the
gradient stays unbiased. An episode is worth the credit of its first sampled token, its return. Unit: trajectory, over
the batch. Singleton rule: alone → 0. An episode never enters its own baseline.
"""

import numpy as np

from quintain.credit.layout import credit_of
from quintain.types import Credit


def subtract_others(credit: Credit) -> Credit:
    """Return `credit` less the mean return of the *other* trajectories of the batch.

    Example: returns 1, 0, .5 → .75, -.75, 0.
    """
    worth = [next((float(array[0]) for array in turns if len(array)), 0.0) for turns in credit.advantages]
    others = len(worth) - 1
    if others < 1:
        zeros = [[np.zeros(len(array)) for array in turns] for turns in credit.advantages]
        return credit_of(credit.trajectories, zeros, metrics=_other_metrics(credit))
    total = sum(worth)
    advantages = [
        [array.astype(np.float64) - (total - own) / others for array in turns]
        for turns, own in zip(credit.advantages, worth, strict=True)
    ]
    return credit_of(credit.trajectories, advantages, metrics=_other_metrics(credit))


def drop_small(credit: Credit, min_size: float) -> Credit:
    """Return `credit` with advantages smaller than `min_size` set to 0 (LOOP, arXiv 2502.01600: 0.01)."""
    advantages = [
        [np.where(np.abs(array) < min_size, 0.0, array) for array in turns] for turns in credit.advantages
    ]
    return credit_of(credit.trajectories, advantages, returns=credit.returns, metrics=_other_metrics(credit))


def _other_metrics(credit: Credit) -> dict[str, float]:
    return {name: value for name, value in credit.metrics.items() if "advantage" not in name}
