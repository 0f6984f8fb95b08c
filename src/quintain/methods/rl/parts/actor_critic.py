"""PPO as other methods take it: a value head on the policy, advantages by GAE, the clipped policy gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, Share
from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorCriticConfig(EpisodesConfig):
    """A configuration whose policy has a critic."""

    learning_rate: float = 1e-4
    num_epochs: int = 2
    discount: Share = 1.0
    """γ, per sampled token."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    vf_coef: NonNegativeFloat = 0.5
    """Weight of the critic's loss."""


def actor_critic(config: ActorCriticConfig) -> OnPolicy:
    """Return the method that learns by PPO, as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        values = estimates.critic
        return whiten(gae_tokens(groups, values, discount=config.discount, gae_lambda=config.gae_lambda))

    loss = combine((clip_ratio(config.clip, config.clip), 1.0), (value(), config.vf_coef))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True),
        needs=Needs(critic=True),
    )
