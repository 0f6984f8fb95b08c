"""π(a) = softmax of Σ_i log p(a_i) / |a|, PPO over turns with γ^duration: TWOSOME (arXiv 2401.14151).

Scores are means over the words (or tokens) of an action, so that a long action does not lose for being long.
Advantages are over turns; a turn that takes several steps of the world is discounted as many times (its
"duration" reward term, 1 where there is none). The updates of a step end when the KL to the sampler passes
`most_kl`.

Differences to the official code: the critic shares the model instead of reading a frozen copy; the whole model is
trained, where the paper trains an adapter; advantages are whitened over the turns of the step, not of a mini-batch
of four. The ratio that is clipped is of an action's tokens, not of the action among the legal ones; with scores per
word that is another distribution than the one that is drawn from (see `quintain.engines.scoring`). Measured on
`craft`, whose turns all last one step, where the paper has Overcooked and VirtualHome.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.credit.gae import gae_turns
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
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Credit, Group, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RangedJob):
    """Configuration of TWOSOME."""

    agent: str = "twosome"
    """Harness that scores whole actions by the mean of their log-probs over words."""
    episodes: int = 32
    """Episodes of a step, each of another task."""
    updates: int = 4
    """Optimizer steps on the episodes of a step, at most."""
    discount: float = 0.99
    """γ per step of the world."""
    decay: float = 0.95
    """λ of generalised advantage estimation, per turn."""
    most_kl: float = 0.02
    """No further update of a step once the KL estimate per token is above this."""


def method(config: Config) -> Method:
    """Return TWOSOME as `config` describes it."""

    def credit(work: Work, groups: Sequence[Group]) -> Credit:
        values = critic(work, groups)
        estimates = gae_turns(
            groups, values, discount=config.discount, gae_lambda=config.decay, duration=duration
        )
        return whiten(estimates, unit="turn")

    loss = combine((clipped(), 1.0), (value(), 0.5), (entropy_bonus(), 0.01))
    plan = Plan(updates=config.updates, keeps_zeros=True, most_kl=config.most_kl)
    return Method(
        collect=grouped(config.episodes, 1),
        credit=credit,
        update=policy_update(loss, plan),
        needs=Needs(critic=True),
    )


def duration(turn: Turn) -> float:
    """Return how many steps of the world `turn` took."""
    return float(turn.reward_terms.get("duration", 1.0))


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
