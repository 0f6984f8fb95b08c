"""Dr. GRPO (arXiv 2503.20783): GRPO without the division by the deviation or by lengths.

A_i = R_i - mean of the group, summed over tokens and divided by a constant.

Two biases of GRPO go: dividing by the deviation of a group weighs nearly solved and nearly hopeless tasks up, and
dividing by an episode's own length makes long failures cheap. The constant is the token budget of an episode. The sum
is divided by the episodes that were sampled: groups that agree have no gradient and count, so that a step with one
informative task of eight is an eighth as long as one with eight, and the estimate stays in proportion to ∇J.

Differences to the paper: many turns; one update per step.
"""

from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.group import group_relative
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Denominator, Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of Dr. GRPO."""

    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    constant: PositiveFloat = 64.0
    """Tokens that the sum over an episode is divided by, whatever its length."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL (k3) to the starting policy in the loss."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss."""
    denominator: Denominator = "sampled"
    """Episodes that the sum is divided by: all that were sampled, or kept ones, whose group differs."""


def method(config: Config) -> OnPolicy:
    """Return Dr. GRPO as `config` describes it."""
    plain = OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups, std="none"),
        update=Update(
            loss=clip_ratio(config.clip, config.clip),
            aggregation="constant",
            constant=config.constant,
            denominator=config.denominator,
        ),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)
