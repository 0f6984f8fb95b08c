"""CISPO (arXiv 2506.13585): clips the weight of a token's gradient, and never drops the token.

L = -Σ sg[min(ρ_t, 1 + ε)] A_t log π(y_t).

A clipped ratio of PPO takes the gradient away from the very tokens that change most (such as a rare "however");
here each token keeps its gradient, with a bounded weight.

Differences to the paper: many turns; the upper bound is 1.28; two updates on the whole batch of a step; the means
over tokens are over those of all groups of the step that differ, as groups that agree have no gradient.
"""

from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.group import group_relative
from quintain.learning.train_config import GroupConfig, check_ratios
from quintain.learning.update import Update
from quintain.losses.policy import cispo
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of CISPO."""

    clip_high: PositiveFloat = 0.28
    """The weight of a token is at most 1 + this."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL (k3) to the starting policy in the loss."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss."""
    num_epochs: int = 2

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        check_ratios(self)


def method(config: Config) -> OnPolicy:
    """Return CISPO as `config` describes it."""
    plain = OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=cispo(config.clip_high)),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)
