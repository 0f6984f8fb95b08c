"""TWOSOME (arXiv 2401.14151): PPO over whole actions, whose likelihood is normalised by their length.

π(a) = softmax of Σ_i log p(a_i) / |a|, γ^duration.

Scores are means over the words (or tokens) of an action, so that a long action does not lose for being long.
Advantages are over turns; a turn that takes several steps of the world is discounted as many times (its
"duration" reward term, 1 where there is none). What a score is divided by, the turn's advantage is, too: that is the
gradient of the policy that is drawn from. The updates of a step end when the KL to the sampler passes `target_kl`.

Differences to the official code: the critic shares the model instead of reading a frozen copy; the whole model is
trained, where the paper trains an adapter; advantages are whitened over the turns of the step, not of a mini-batch
of four. The ratio that is clipped is of an action's tokens, not of the action among the legal ones, and the gradient is
that of the policy over actions only where the critic is exact: elsewhere it favours short or long ones (see
`quintain.engines.scoring`). Entropy is over the vocabulary. Measured on `craft`, whose turns all last one step, where
the paper has Overcooked and VirtualHome.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quintain.agents.catalog import score_length
from quintain.config.ranges import PositiveFloat, PositiveInt, Share
from quintain.credit.gae import gae_turns
from quintain.credit.whiten import whiten
from quintain.learning.job import EpisodesJob
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.types import Credit, Group, Task, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesJob):
    """Configuration of TWOSOME."""

    agent: str = "twosome"
    """Harness that scores whole actions by the mean of their log-probs over words."""
    episodes: PositiveInt = 32
    num_epochs: int = 4
    discount: Share = 0.99
    """γ per step of the world."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation, per turn."""
    target_kl: PositiveFloat = 0.02
    """No further update of a step once the KL estimate per token is above this."""


def method(config: Config) -> OnPolicy:
    """Return TWOSOME as `config` describes it."""
    length = score_length(config.agent)

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        advantages = gae_turns(
            groups,
            estimates.critic,
            discount=config.discount,
            gae_lambda=config.gae_lambda,
            duration=duration,
        )
        return per_length(whiten(advantages, unit="turn"), length)

    loss = combine((clip_ratio(), 1.0), (value(), 0.5), (entropy_bonus(), 0.01))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True, target_kl=config.target_kl),
        needs=Needs(critic=True),
    )


def per_length(credit: Credit, length: Callable[[Task, str, Sequence[int]], float]) -> Credit:
    """Return `credit` with each turn's advantages divided by what the score of its action was divided by.

    π(a) = softmax(Σ log p / |a|), so ∇log π(a) = Σ ∇log p / |a| but for what is the same for all actions of a state,
    which matters where the advantages of a state do not have mean zero (see `quintain.engines.scoring`).
    Internal turns are written token by token, no action is scored in them, and their advantages stay.
    """

    def divisor(task: Task, turn: Turn) -> float:
        return 1.0 if turn.is_internal else length(task, turn.action.text, turn.completion.token_ids)

    advantages = tuple(
        tuple(
            (array / divisor(t.task, turn)).astype(array.dtype)
            for array, turn in zip(own, t.turns, strict=True)
        )
        for own, t in zip(credit.advantages, credit.trajectories, strict=True)
    )
    return replace(credit, advantages=advantages)


def duration(turn: Turn) -> float:
    """Return how many steps of the world `turn` took."""
    return float(turn.reward_terms.get("duration", 1.0))
