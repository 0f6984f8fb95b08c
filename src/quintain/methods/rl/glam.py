"""π(a) = softmax over the legal actions of Σ_i log p(a_i | h, a_<i), then PPO: GLAM (arXiv 2302.02662).

The model does not write freely: it scores each legal action as a whole and one is drawn by its probability, so
every action is legal from the first step on. A value head and generalised advantage estimation; policy and
value are clipped.

Differences to the official code: log-probs are summed, not raw logits, and padding adds nothing; the gradient is
that of the chosen action's tokens (see `quintain.engines.scoring`); the value is read at the last prompt token of a
turn. Advantages are whitened over the tokens of a step, which the code does not; the prompt holds the whole episode
instead of the last three observations; the model is a small decoder that imitated before, not Flan-T5. Measured on
one small room of BabyAI and on keys and doors (`keydoor`), where the paper has a mixture of its tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clipped
from quintain.losses.value import value
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.critic import critic
from quintain.methods.rl.parts.ranges import RangedJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import apply_all
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RangedJob):
    """Configuration of GLAM."""

    agent: str = "glam"
    """Harness that scores whole actions by the sum of their log-probs."""
    episodes: int = 32
    """Episodes of a step, each of another task."""
    updates: int = 4
    """Optimizer steps on the episodes of a step."""
    discount: float = 0.99
    """γ between turns; 1 between the tokens of an action."""
    decay: float = 0.99
    """λ of generalised advantage estimation."""
    reward_scale: float = 1.0
    """What rewards are multiplied by; the paper has 20."""


def method(config: Config) -> Method:
    """Return GLAM as `config` describes it."""

    def credit(work: Work, groups: Sequence[Group]) -> Credit:
        values = critic(work, groups)
        return whiten(gae_tokens(groups, values, turn_discount=config.discount, gae_lambda=config.decay))

    loss = combine((clipped(), 1.0), (value(clip=0.2), 0.5), (entropy_bonus(), 0.01))
    return Method(
        collect=grouped(config.episodes, 1),
        reward=partial(apply_all, terms=(environment_reward(config.reward_scale),)),
        credit=credit,
        update=policy_update(loss, Plan(updates=config.updates, keeps_zeros=True, keeps_values=True)),
        needs=Needs(critic=True),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
