"""r = s(episode) on the last turn, 0 before: a reward model's score in the place of the environment's reward.

The turn's reward falls on its last *sampled* token, however long the others are and whatever stands behind it. What the
environment said stays measured beside it: a score that rises while that falls is what a reward model is over-optimised
by (arXiv 2210.10760). Unit: episode; nothing is normalised. Singleton rule: none needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from quintain.credit.layout import outcome_of
from quintain.errors import InvariantError
from quintain.types import Group, Score, Trajectory, flatten_scored

PROXY, GOLD = "reward_model/score", "reward_model/gold"
"""Metrics: mean score, and mean reward of the environment, of the same episodes."""


def pay_scores(groups: Sequence[Group], scores: Sequence[float]) -> list[Group]:
    """Return `groups` paid by `scores`, those of the scored trajectories in order.

    Raises:
        InvariantError: there are not as many, or one is not finite.
    """
    trajectories = flatten_scored(groups)
    if len(trajectories) != len(scores) or not np.isfinite(scores).all():
        raise InvariantError(
            f"scores of {len(trajectories)} episodes: got {len(scores)}, to be as many and finite; look at the reward "
            "model"
        )
    own = {id(trajectory): score for trajectory, score in zip(trajectories, scores, strict=True)}

    def pay(trajectory: Trajectory) -> Trajectory:
        outcome = trajectory.outcome
        if id(trajectory) not in own or not isinstance(outcome, Score):
            return trajectory
        score, last = own[id(trajectory)], len(trajectory.turns) - 1
        turns = tuple(
            replace(turn, reward=score if place == last else 0.0)
            for place, turn in enumerate(trajectory.turns)
        )
        return replace(trajectory, outcome=replace(outcome, value=score), turns=turns)

    return [replace(group, trajectories=tuple(map(pay, group.trajectories))) for group in groups]


def score_metrics(groups: Sequence[Group], scores: Sequence[float]) -> Mapping[str, float]:
    """Return the mean of `scores` and of what the environment said of the same episodes."""
    gold = [outcome_of(trajectory) for trajectory in flatten_scored(groups)]
    return {PROXY: float(np.mean(scores)), GOLD: float(np.mean(gold))} if gold else {}
