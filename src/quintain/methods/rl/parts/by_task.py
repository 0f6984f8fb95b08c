"""What each kind of task contributes to a step of a mixed run: reward scale, solve rate, share of the gradient.

A kind is the task's environment. Without these numbers one environment whose rewards are ten times as large as
the others' takes over the update unseen. The one rule: a run of one kind reports nothing of this.
"""

from collections.abc import Sequence

import numpy as np

from quintain.credit.layout import outcome_of
from quintain.types import Credit, Group


def by_task(groups: Sequence[Group], credit: Credit) -> dict[str, float]:
    """Return for each kind of task success, mean and deviation of the outcomes, and its share of Σ|A|.

    Σ|A| runs over the sampled tokens: on-policy and with a mean over tokens, it bounds the norm of the policy gradient;
    a mean over episodes first lets long episodes weigh less than this says. {} for one kind.
    """
    kinds = sorted({group.task.environment for group in groups})
    if len(kinds) < 2:
        return {}
    size = dict.fromkeys(kinds, 0.0)
    for trajectory, arrays in zip(credit.trajectories, credit.advantages, strict=True):
        size[trajectory.task.environment] += sum(float(np.abs(array).sum()) for array in arrays)
    total = sum(size.values()) or 1.0
    metrics: dict[str, float] = {}
    for kind in kinds:
        scored = [t for group in groups if group.task.environment == kind for t in group.scored]
        if not scored:
            continue
        outcomes = [outcome_of(t) for t in scored]
        wins = [t.is_success for t in scored]
        metrics |= {
            f"task/{kind}/success": float(np.mean(wins)),
            f"task/{kind}/reward": float(np.mean(outcomes)),
            f"task/{kind}/reward_std": float(np.std(outcomes)),
            f"task/{kind}/gradient_share": size[kind] / total,
        }
    return metrics
