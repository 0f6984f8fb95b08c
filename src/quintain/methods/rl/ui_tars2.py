"""UI-TARS-2 (arXiv 2509.02544): PPO for long episodes, a critic first, λ by length, clip-higher.

For the first steps only the value head learns, on Monte-Carlo returns of a policy that stands still. Then
advantages use λ = 1 - 1/(α·tokens of the episode), and the critic's targets λ = 1 (decoupled estimation).
Specialists with the same ancestor become one by the mean of their weights, `quintain export --with`.

Differences to the paper: rollouts are synchronous; the outcome is the environment's, where the paper also judges
with its own model; the value head is one layer on the policy, whose weights rest while it warms up. The flywheel of
data, judged by a validator, is left out, as is shaping by format and length. α is .25, and .05 as published, with which
λ is 0 in episodes of 20 tokens or fewer, and .95 at 400. The paper's critic learns alone until it has converged; here
that is a number of steps, 10. Measured on Sokoban, and on BabyAI with α = 1, for its episodes have a dozen tokens; the
paper has desktops, phones, browsers and games.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeInt, PositiveFloat
from quintain.credit.gae import gae_tokens, join_advantages, length_adaptive
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
class Config(EpisodesConfig):
    """Configuration of the reinforcement learning of UI-TARS-2."""

    critic_steps: NonNegativeInt = 10
    """First steps in which only the value head learns."""
    adaptive: PositiveFloat = 0.25
    """α of λ = 1 - 1/(α·tokens), at least 0; 0.05 is as published, for episodes of hundreds of tokens."""
    clip_high: PositiveFloat = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return PPO as UI-TARS-2 has it, as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        values = estimates.critic
        advantages = gae_tokens(groups, values, gae_lambda=length_adaptive(config.adaptive))
        return whiten(join_advantages(advantages, gae_tokens(groups, values, gae_lambda=1.0)))

    loss = combine((clip_ratio(0.2, config.clip_high), 1.0), (value(), 0.5))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True, critic_steps=config.critic_steps, critic_loss=value()),
        needs=Needs(critic=True),
    )
