"""MetaSpatial (arXiv 2503.18470): several attempts at one layout, discounted, compared within the group.

R = Σ_k γ^k r_k.

Each turn is a whole new attempt that sees what the last one earned; what an episode is worth is the discounted
sum of its attempts, so that good first attempts count most. The world `room` scores layouts by
`quintain.rewards.arrangement`, with the paper's weights for format, collisions and constraints.

Differences to the paper: attempts are turns of any environment that rewards each of them, and a perfect one ends the
episode; `room` is flat and told in words, and has no judge of pictures (a subclass may have one: `BoxRoom.grades`); a
failed judge is a failure of the episode, never a grade of 0. Groups have 8 episodes instead of 3. Measured on rooms of
text, and on mastermind, whose turns are attempts at one code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quintain.config.ranges import NonNegativeFloat, PositiveInt, Share
from quintain.credit.discounted import returns_to_go
from quintain.credit.group import group_relative
from quintain.credit.layout import turn_rewards
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.types import Group, Score, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of MetaSpatial."""

    attempts: PositiveInt = 3
    """Turns of a training episode."""
    discount: Share = 0.9
    """γ, what a later attempt is worth."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight of the KL (k3) to the starting policy in the loss; 0 for none."""


def method(config: Config) -> OnPolicy:
    """Return MetaSpatial as `config` describes it."""
    has_kl = config.kl_coef > 0
    loss = combine((clip_ratio(), 1.0), (kl_penalty("k3"), config.kl_coef)) if has_kl else clip_ratio()

    def refine(groups: Sequence[Group]) -> Sequence[Group]:
        return [
            replace(
                group, trajectories=tuple(discount_rewards(t, config.discount) for t in group.trajectories)
            )
            for group in groups
        ]

    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size, max_turns=lambda _: config.attempts),
        reward=refine,
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=loss, keeps_zeros=has_kl, has_reference=has_kl),
        needs=Needs(reference=has_kl),
    )


def discount_rewards(trajectory: Trajectory, discount: float) -> Trajectory:
    """Return `trajectory` with the discounted sum of its turn rewards as its outcome; a failure stays one."""
    if not isinstance(trajectory.outcome, Score) or not trajectory.turns:
        return trajectory
    value = returns_to_go(turn_rewards(trajectory), discount)[0]
    return replace(trajectory, outcome=replace(trajectory.outcome, value=value))
