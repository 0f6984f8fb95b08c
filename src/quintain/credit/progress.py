"""r_k = alpha·c_k + β·g_k with Σ_k c_k = R: an outcome divided over the turns that made progress to it.

SPA-RL (arXiv 2505.20732). The contributions c_k come from an estimator; what they miss of the outcome R is shared
equally so that they sum to it. g_k is 1 where the action could be carried out. The result is new turn rewards: any
credit may follow (the paper: GAE over tokens). Unit: none, nothing is normalised. Singleton rule: a single turn gets
the whole outcome. Contributions are placed at their own turn and sum to the outcome; nothing multiplies them.
"""

from collections.abc import Sequence
from dataclasses import replace

from quintain.credit.layout import outcome_of
from quintain.errors import DataError
from quintain.types import Group, Trajectory


def complete(contributions: Sequence[float], outcome: float) -> list[float]:
    """Return `contributions` made to sum to `outcome`: what is missing is shared equally.

    Example: .2, .5 for outcome 1 → .35, .65.
    """
    missing = (outcome - sum(contributions)) / max(len(contributions), 1)
    return [contribution + missing for contribution in contributions]


def progress_rewards(
    groups: Sequence[Group],
    contributions: Sequence[Sequence[float]],
    *,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> list[Group]:
    """Return `groups` with fused turn rewards; `contributions` are those of the scored trajectories, in
    order.

    Outcomes stay as they are. Raises `DataError` when a trajectory has not one contribution for every turn.
    """
    waiting = iter(contributions)

    def fuse(trajectory: Trajectory) -> Trajectory:
        own = next(waiting, ())
        if len(own) != len(trajectory.turns):
            num = len(trajectory.turns)
            raise DataError(
                f"contributions to {trajectory.task.id}: got {len(own)}; give one to each of {num} turns"
            )
        shares = complete(own, outcome_of(trajectory))
        turns = tuple(
            replace(turn, reward=alpha * share + beta * turn.is_valid)
            for turn, share in zip(trajectory.turns, shares, strict=True)
        )
        return replace(trajectory, turns=turns)

    scored = [{id(t) for t in group.scored} for group in groups]
    return [
        replace(group, trajectories=tuple(fuse(t) if id(t) in keep else t for t in group.trajectories))
        for group, keep in zip(groups, scored, strict=True)
    ]
