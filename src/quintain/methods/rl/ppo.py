"""A_t = Σ (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} - V_t, then the clipped policy gradient: PPO (arXiv 1707.06347).

A value head on the policy predicts the return before every sampled token; generalised advantage estimation
(1506.02438) runs over the sampled tokens of an episode, across observations: the next value is that of the next
token the policy sampled. A turn's reward belongs to its last token.

Differences to the papers: policy and critic share the model and one loss; advantages are whitened over the tokens
of the step; after a truncation the value of the last sampled token's state stands for that of the state after it.
There is neither an entropy bonus nor a clip of the value, and the episodes of a step are one batch. Measured on
BabyAI, where the paper has robots and Atari.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.losses.compose import combine
from quintain.losses.policy import clipped
from quintain.losses.value import value
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.critic import critic
from quintain.methods.rl.parts.ranges import RangedJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RangedJob):
    """Configuration of PPO."""

    learning_rate: float = 1e-4
    episodes: int = 64
    """Episodes of a step, each of another task."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""
    discount: float = 1.0
    """γ, per sampled token."""
    decay: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """The ratio is clipped to 1 ± this."""
    value_weight: float = 0.5
    """Weight of the critic's loss."""


def method(config: Config) -> Method:
    """Return PPO as `config` describes it."""

    def credit(work: Work, groups: Sequence[Group]) -> Credit:
        values = critic(work, groups)
        return whiten(gae_tokens(groups, values, discount=config.discount, gae_lambda=config.decay))

    loss = combine((clipped(config.clip, config.clip), 1.0), (value(), config.value_weight))
    return Method(
        collect=grouped(config.episodes, 1),
        credit=credit,
        update=policy_update(loss, Plan(updates=config.updates, keeps_zeros=True)),
        needs=Needs(critic=True),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
