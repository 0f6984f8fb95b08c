"""A_t = Σ (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} - V_t, then the clipped policy gradient: PPO (arXiv 1707.06347).

A value head on the policy predicts the return before every sampled token; generalised advantage estimation
(1506.02438) runs over the sampled tokens of an episode, across observations: the next value is that of the next
token the policy sampled. A turn's reward belongs to its last token.

Differences to the papers: policy and critic share the model and one loss; advantages are whitened over the tokens
of the step; the task's own limit of turns is an end, after which nothing is expected. There is neither an entropy
bonus nor a clip of the value, and the episodes of a step are one batch. Measured on BabyAI, where the paper has
robots and Atari.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, Share
from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.learning.job import EpisodesJob
from quintain.losses.compose import combine
from quintain.losses.policy import clipped
from quintain.losses.value import value
from quintain.methods.method import Estimates, Needs, OnPolicy, Update, grouped
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesJob):
    """Configuration of PPO."""

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


def method(config: Config) -> OnPolicy:
    """Return PPO as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        values = estimates.critic
        return whiten(gae_tokens(groups, values, discount=config.discount, gae_lambda=config.gae_lambda))

    loss = combine((clipped(config.clip, config.clip), 1.0), (value(), config.vf_coef))
    return OnPolicy(
        collect=grouped(config.episodes, 1),
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True),
        needs=Needs(critic=True),
    )
