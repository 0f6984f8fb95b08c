"""REINFORCE++ (arXiv 2501.03262): rewards less a KL per token, whitened over the whole batch.

A_t = whitened over the batch (G_t - β Σ_{s≥t} KL_s).

No critic and no groups: returns-to-go with the KL to the starting policy as a reward of each token (k1), whitened
over the sampled tokens of the step, then the clipped ratio of PPO. With `group_size` above 1 it is the "-baseline"
form: the outcome less its group's mean, whitened over the batch, the KL (k2) in the loss, of groups that agree too.

Differences to the paper: turns may be discounted; AdamW at the rate of the other methods here. The episodes of a
step are one batch. Measured on BabyAI, where the paper has human preferences and mathematics.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveInt, Share
from quintain.credit.whiten import reinforce_plus_plus, reinforce_plus_plus_baseline
from quintain.errors import ConfigError
from quintain.learning.train_config import OnPolicyConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.kl import price_kl
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyConfig):
    """Configuration of REINFORCE++."""

    tasks: PositiveInt = 64
    """Tasks of a step."""
    group_size: int = 1
    """Episodes of a task; above 1 their mean is the baseline."""
    discount: Share = 1.0
    """γ, per turn."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight β of the KL to the starting policy, in the reward, or in the loss with groups."""
    num_epochs: int = 2

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have, or that its form would ignore."""
        OnPolicyConfig.check(self)
        if self.group_size < 1 or self.tasks * self.group_size < 2:
            raise ConfigError(
                f"tasks, group_size: got {self.tasks}, {self.group_size}, and an episode alone cannot be whitened; "
                "give 2 or more episodes"
            )
        if self.group_size > 1 and self.discount != 1:
            raise ConfigError(
                f"discount: got {self.discount} with group_size {self.group_size}, where outcomes are compared whole; "
                "leave one of the two out"
            )


def method(config: Config) -> OnPolicy:
    """Return REINFORCE++ as `config` describes it."""
    has_groups = config.group_size > 1

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        if has_groups:
            return reinforce_plus_plus_baseline(groups)
        penalty = price_kl(groups, estimates, config.kl_coef)
        return reinforce_plus_plus(groups, discount=config.discount, token_rewards=penalty)

    in_loss = has_groups and config.kl_coef > 0
    loss = combine((clip_ratio(), 1.0), (kl_penalty("k2"), config.kl_coef)) if in_loss else clip_ratio()
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=credit,
        update=Update(loss=loss, keeps_zeros=in_loss, has_reference=in_loss),
        needs=Needs(reference=config.kl_coef > 0, reference_logprobs=config.kl_coef > 0),
    )
