"""A_i = (R_i - mean_group) / (std_group + ε): outcomes are compared within their group, no critic.

GRPO (arXiv 2402.03300) with std="unbiased", which is what `torch.std` computes there; Dr. GRPO (2503.20783) with
std="none"; leave-one-out is RLOO (2402.14740) and LOOP (2502.01600). Unit: trajectory; in `group_process` the turn.
Singleton rule: alone in a group → 0. No variance → exactly 0. A group is an explicit id, never a place in a list.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from quintain.credit.layout import (
    by_group,
    credit_of,
    group_metrics,
    outcome_of,
    repeat_over_tokens,
    turn_rewards,
)
from quintain.errors import UsageError, suggestion
from quintain.types import Credit, Group, flatten_scored, is_constant

Std = Literal["unbiased", "biased", "none"]


def normalise(values: Sequence[float], *, std: Std = "unbiased", epsilon: float = 1e-6) -> list[float]:
    """Return (x - mean) / (std + `epsilon`) of `values`; all zeros for one value or without variance.

    `std` "unbiased" divides by n - 1, "biased" by n, "none" does not divide.
    """
    if std not in get_args(Std):
        raise UsageError(f"standard deviation of a group: got {std!r}; {suggestion(std, get_args(Std))}")
    if is_constant(values):
        return [0.0] * len(values)
    array = np.asarray(values, np.float64)
    centred = array - array.mean()
    if std == "none":
        return centred.tolist()
    return (centred / (array.std(ddof=int(std == "unbiased")) + epsilon)).tolist()


def group_relative(groups: Sequence[Group], *, std: Std = "unbiased", epsilon: float = 1e-6) -> Credit:
    """Give every token of a trajectory its outcome, normalised within its group (arXiv 2402.03300).

    Example: outcomes 1, 0, 0, 1 → ±0.86602 (unbiased), ±1 (biased), ±0.5 (none).
    """
    trajectories = flatten_scored(groups)
    numbers = [0.0] * len(trajectories)
    for indices in by_group(trajectories):
        values = normalise([outcome_of(trajectories[i]) for i in indices], std=std, epsilon=epsilon)
        for index, value in zip(indices, values, strict=True):
            numbers[index] = value
    return _from_numbers(groups, numbers)


def leave_one_out(groups: Sequence[Group]) -> Credit:
    """Give every token R_i - mean of the *others* in its group: A = n/(n-1)·(R - mean) (arXiv 2402.14740).

    Example: outcomes 1, 0, 0, 1 → ±2/3. A group's advantages sum to 0.
    """
    trajectories = flatten_scored(groups)
    numbers = [0.0] * len(trajectories)
    for indices in by_group(trajectories):
        size = len(indices)
        values = normalise([outcome_of(trajectories[i]) for i in indices], std="none")
        for index, value in zip(indices, values, strict=True):
            numbers[index] = value * size / max(size - 1, 1)
    return _from_numbers(groups, numbers)


def group_process(groups: Sequence[Group], *, std: Std = "unbiased", epsilon: float = 1e-6) -> Credit:
    """Normalise turn rewards over all turns of the group; a token gets the sum from its turn on.

    GRPO with process supervision (arXiv 2402.03300, section 4.1.3). Unit of the statistics: turn. Without
    turn rewards other than the last it is *not* `group_relative`: the zeros of other turns enter the mean.
    """
    trajectories = flatten_scored(groups)
    rewards = [turn_rewards(trajectory) for trajectory in trajectories]
    per_turn: list[list[float]] = [[] for _ in trajectories]
    for indices in by_group(trajectories):
        flat = normalise([r for i in indices for r in rewards[i]], std=std, epsilon=epsilon)
        values = iter(flat if len(indices) > 1 else [0.0] * len(flat))
        for index in indices:
            own = [next(values) for _ in rewards[index]]
            per_turn[index] = np.cumsum(own[::-1])[::-1].tolist()
    metrics = group_metrics(trajectories, outcome_of)
    return credit_of(trajectories, repeat_over_tokens(trajectories, per_turn), metrics=metrics)


def _from_numbers(groups: Sequence[Group], numbers: Sequence[float]) -> Credit:
    trajectories = flatten_scored(groups)
    per_turn = [[x] * len(t.turns) for x, t in zip(numbers, trajectories, strict=True)]
    metrics = group_metrics(trajectories, outcome_of)
    return credit_of(trajectories, repeat_over_tokens(trajectories, per_turn), metrics=metrics)
