"""A_k = A_O + λ·A_T,k for turns before the last and A_O for the last: outcome and turn credit, each in its group.

MT-GRPO (arXiv 2505.11821). A_T,k compares the reward of turn k with that of the same turn of the others in the group,
A_O the reward of the last turn; both normalised. The paper has two turns; for more we compare turns of equal number.
Unit: trajectory, for each turn number. Singleton rule: alone (in its group, or in reaching a turn) → 0. No variance →
exactly 0. The reward of the last turn is the outcome, all earlier ones are turn rewards.
"""

from collections.abc import Sequence

from quintain.credit.group import Std, normalise
from quintain.credit.layout import (
    by_group,
    credit_of,
    group_metrics,
    outcome_of,
    repeat_over_tokens,
    turn_rewards,
)
from quintain.types import Credit, Group, flatten_scored


def turn_group_relative(
    groups: Sequence[Group], *, weight: float = 1.0, std: Std = "unbiased", epsilon: float = 1e-4
) -> Credit:
    """Mix outcome and turn advantages with λ = `weight`.

    Example: turn rewards 1, .5, 0, .5 and outcomes 1, 0, 0, 1 of four episodes → the first has 2.09032 on its
    first turn and .86588 on its last.
    """
    trajectories = flatten_scored(groups)
    rewards = [turn_rewards(trajectory) for trajectory in trajectories]
    per_turn = [[0.0] * len(own) for own in rewards]
    for indices in by_group(trajectories):
        outcomes = normalise([rewards[i][-1] for i in indices], std=std, epsilon=epsilon)
        for index, value in zip(indices, outcomes, strict=True):
            per_turn[index] = [value] * len(rewards[index])
        for number in range(max(len(rewards[i]) for i in indices) - 1):
            reached = [i for i in indices if len(rewards[i]) > number + 1]
            values = normalise([rewards[i][number] for i in reached], std=std, epsilon=epsilon)
            for index, value in zip(reached, values, strict=True):
                per_turn[index][number] += weight * value
    metrics = group_metrics(trajectories, outcome_of)
    return credit_of(trajectories, repeat_over_tokens(trajectories, per_turn), metrics=metrics)
