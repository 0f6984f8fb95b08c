"""A_i = (R_i - mean) / (std + ε), with the mean and the deviation of the group, of the batch, or of neither.

"Part I: Tricks or Traps?" (arXiv 2508.08221): the mean of the group with the deviation of the *batch* is Lite PPO;
group and group is GRPO, group and none Dr. GRPO. The deviation of a group whose outcomes are nearly equal is nearly 0
and blows its advantages up; that of the batch does not. Unit: trajectory. Singleton rule: alone in its unit → 0. No
variance → exactly 0.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from quintain.credit.layout import by_group, credit_of, group_metrics, outcome_of, repeat_over_tokens
from quintain.errors import UsageError, suggestion
from quintain.types import Credit, Group, flatten_scored, is_constant

Over = Literal["group", "batch", "none"]


def normalise_over(
    groups: Sequence[Group],
    *,
    mean: Over = "group",
    std: Over = "batch",
    is_unbiased: bool = True,
    epsilon: float = 1e-6,
) -> Credit:
    """Give every token its outcome less the `mean`, over the standard deviation of the outcomes over `std`.

    Example: groups (1, 0) and (1, 1), mean "group", std "batch" unbiased (.5) → 1, -1, 0, 0.
    """
    for name, value in (("mean", mean), ("std", std)):
        if value not in get_args(Over):
            raise UsageError(f"{name} of outcomes: got {value!r}; {suggestion(value, get_args(Over))}")
    trajectories = flatten_scored(groups)
    outcomes = [outcome_of(trajectory) for trajectory in trajectories]
    members: dict[Over, list[list[int]]] = {
        "group": by_group(trajectories),
        "batch": [list(range(len(trajectories)))] if trajectories else [],
        "none": [],
    }
    numbers = np.array(outcomes, np.float64)
    for indices in members[mean]:
        own = [outcomes[i] for i in indices]
        flat = is_constant(own)
        numbers[indices] = 0.0 if flat else np.array(own) - np.mean(own)
    for indices in members[std]:
        own = [outcomes[i] for i in indices]
        if is_constant(own):
            numbers[indices] = 0.0
        else:
            numbers[indices] /= np.std(own, ddof=int(is_unbiased)) + epsilon
    per_turn = [[float(x)] * len(t.turns) for x, t in zip(numbers, trajectories, strict=True)]
    metrics = group_metrics(trajectories, outcome_of)
    return credit_of(trajectories, repeat_over_tokens(trajectories, per_turn), metrics=metrics)
