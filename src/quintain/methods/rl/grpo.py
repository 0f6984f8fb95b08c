"""GRPO (arXiv 2402.03300): an episode counts by how much better it was than its group.

A = (R - mean of the group) / std of the group, then the clipped policy gradient.

Several episodes of one task are a group; an episode is as good as it is better than its group. Every token
the policy sampled in it, over all turns, gets the same advantage.

Differences to the paper: outcome supervision over multi-turn episodes; clip-higher 0.28, as in DAPO (2503.14476);
no KL term unless `kl_coef` is given; one update per step, so the ratio stays near 1. Groups that are all equal have no
gradient: they are left out, also of the mean over sequences, and a step of only such groups takes no optimizer step,
unless there is a KL or an entropy term. The learning rate rises over the first steps. Measured on BabyAI with a model
of 0.2M parameters, where the paper has mathematics with 7B.
"""

from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.group import Std, group_relative
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of GRPO."""

    std: Std = "unbiased"
    """Standard deviation that advantages are divided by; none leaves them undivided (Dr. GRPO, 2503.20783)."""
    clip_low: PositiveFloat = 0.2
    """The ratio is clipped below at 1 - this."""
    clip_high: PositiveFloat = 0.28
    """The ratio is clipped above at 1 + this."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL (k3) to the starting policy in the loss."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss."""


def method(config: Config) -> OnPolicy:
    """Return GRPO as `config` describes it."""
    plain = OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups, std=config.std),
        update=Update(
            loss=clip_ratio(low=config.clip_low, high=config.clip_high), aggregation="sequence_mean"
        ),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)
