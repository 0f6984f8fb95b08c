"""G_k = r_k + gamma·G_{k+1}: what was still to come, from each turn on; gamma is per turn, not per token.

Reward-to-go (Sutton et al. 2000). Rewards per token, such as -β·KL to a reference, are added from the token on. Unit:
none, nothing is estimated here. Singleton rule: none needed. Truncation: what lies beyond is 0; use
`quintain.credit.gae` with final values where that is wrong. A token gets only what came after it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.credit.layout import (
    TokenArrays,
    check_arrays,
    credit_of,
    group_metrics,
    outcome_of,
    turn_rewards,
)
from quintain.types import Credit, Group, Trajectory, flatten_scored


def returns_to_go(rewards: Sequence[float], discount: float) -> list[float]:
    """Return r_k + gamma·r_{k+1} + gamma²·r_{k+2} + … for every k. Example: (0, 10) with .95 → 9.5, 10."""
    result: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + discount * total
        result.append(total)
    return result[::-1]


def discounted_return(
    groups: Sequence[Group], *, discount: float = 1.0, token_rewards: TokenArrays | None = None
) -> Credit:
    """Give every token the return from its turn on, plus what `token_rewards` hold from the token on.

    `token_rewards[trajectory][turn]` → [tokens]: rewards of their own for single tokens, over the scored
    trajectories in order; they are not discounted within a turn.
    """
    trajectories = flatten_scored(groups)
    extra = None if token_rewards is None else check_arrays(trajectories, token_rewards, "token rewards")
    advantages = [
        _to_go(trajectory, discount, None if extra is None else extra[index])
        for index, trajectory in enumerate(trajectories)
    ]
    return credit_of(trajectories, advantages, metrics=group_metrics(trajectories, outcome_of))


def _to_go(
    trajectory: Trajectory, discount: float, extra: Sequence[NDArray[np.floating]] | None
) -> list[NDArray[np.float64]]:
    arrays: list[NDArray[np.float64]] = []
    rewards = turn_rewards(trajectory)
    total = 0.0
    for index in reversed(range(len(trajectory.turns))):
        num = len(trajectory.turns[index].completion.token_ids)
        own = np.zeros(num) if extra is None else np.asarray(extra[index], np.float64)
        base = rewards[index] + discount * total
        arrays.append(base + np.cumsum(own[::-1])[::-1])
        total = base + float(own.sum())
    return arrays[::-1]
