"""GiGPO (arXiv 2505.10978): compares episodes in a group, and actions taken in equal states.

A = A_episode + ω A_step, A_step among equal states of a task.

Episodes of one task meet the same states. Where they do, the actions taken there are compared by their discounted
returns: credit for a step without a critic and without more rollouts. With unique states it is GRPO.

Differences to the official code: A_episode compares episodes, not their steps, so long ones do not count more; the
token stream of an episode is one stream, not one prompt per step; one update per step. Success pays what the
environment says, not 10; a step has 8 tasks instead of 16. Measured on BabyAI and on keys and doors (`keydoor`),
where the paper has ALFWorld and WebShop.
"""

from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat, Share
from quintain.credit.anchor import state_anchored
from quintain.credit.group import Std
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.rewards.conduct import environment_reward, invalid_action_penalty
from quintain.rewards.terms import apply_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of GiGPO."""

    step_weight: NonNegativeFloat = 1.0
    """ω, weight of the advantage among equal states."""
    discount: Share = 0.95
    """γ of the returns that are compared in a state, per turn."""
    std: Std = "unbiased"
    """Standard deviation that both levels are divided by; none leaves them undivided."""
    invalid_penalty: NonNegativeFloat = 0.1
    """Reward lost by an action that cannot be carried out."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL (k3) to the starting policy in the loss; the paper has 0.01."""


def method(config: Config) -> OnPolicy:
    """Return GiGPO as `config` describes it."""
    has_kl = config.kl_coef > 0
    loss = combine((clip_ratio(), 1.0), (kl_penalty("k3"), config.kl_coef)) if has_kl else clip_ratio()
    terms = (environment_reward(), invalid_action_penalty(config.invalid_penalty))
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=terms),
        credit=lambda groups, _: state_anchored(
            groups, weight=config.step_weight, discount=config.discount, std=config.std
        ),
        update=Update(loss=loss, aggregation="sequence_mean", keeps_zeros=has_kl, has_reference=has_kl),
        needs=Needs(reference=has_kl, state_keys=True),
    )
