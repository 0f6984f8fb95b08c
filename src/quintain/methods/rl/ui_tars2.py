"""PPO for long episodes: a critic first, λ by length, two λ, clip-higher: UI-TARS-2 (arXiv 2509.02544).

For the first steps only the value head learns, on Monte-Carlo returns of a policy that stands still. Then
advantages use λ = 1 - 1/(α·tokens of the episode), and the critic's targets λ = 1 (decoupled estimation).
Specialists with the same ancestor become one by the mean of their weights, `quintain export --with`.

Differences to the paper: rollouts are synchronous; the outcome is the environment's, where the paper also judges
with its own model; the value head is one layer on the policy, whose weights rest while it warms up. The flywheel of
data, judged by a validator, is left out, as is shaping by format and length. Measured on Sokoban and BabyAI with α
= 1, for its episodes have a dozen tokens; the paper has desktops, phones, browsers and games.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.credit.gae import decoupled, gae_tokens, length_adaptive
from quintain.credit.whiten import whiten
from quintain.losses.compose import combine
from quintain.losses.policy import clipped
from quintain.losses.value import value
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.critic import critic
from quintain.methods.rl.parts.ranges import RangedJob
from quintain.methods.rl.parts.updating import Plan, critic_first, policy_update
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RangedJob):
    """Configuration of the reinforcement learning of UI-TARS-2."""

    episodes: int = 64
    """Episodes of a step, each of another task."""
    critic_steps: int = 3
    """First steps in which only the value head learns."""
    adaptive: float = 0.05
    """α of λ = 1 - 1/(α·tokens)."""
    clip_high: float = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""


def method(config: Config) -> Method:
    """Return PPO as UI-TARS-2 has it, as `config` describes it."""

    def credit(work: Work, groups: Sequence[Group]) -> Credit:
        values = critic(work, groups)
        advantages = gae_tokens(groups, values, gae_lambda=length_adaptive(config.adaptive))
        return whiten(decoupled(advantages, gae_tokens(groups, values, gae_lambda=1.0)))

    loss = combine((clipped(0.2, config.clip_high), 1.0), (value(), 0.5))
    update = policy_update(loss, Plan(updates=config.updates, keeps_zeros=True))
    return Method(
        collect=grouped(config.episodes, 1),
        credit=credit,
        update=critic_first(update, value(), steps=config.critic_steps),
        needs=Needs(critic=True),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
