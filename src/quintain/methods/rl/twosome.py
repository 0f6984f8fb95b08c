"""TWOSOME (arXiv 2401.14151): PPO over whole actions, whose likelihood is normalised by their length.

π(a) = softmax of Σ_i log p(a_i) / |a|, γ^duration.

Scores are means over the words (or tokens) of an action, so that a long action does not lose for being long.
Advantages are over turns; a turn that takes several steps of the world is discounted as many times (its
"duration" reward term, 1 where there is none). Ratio, clip, KL and entropy are those of whole actions: log π(a) is
normalised over all legal ones, which are computed with the chosen one (`quintain.losses.actions`). The updates of a
step end when the KL to the sampler passes `target_kl`.

Differences to the official code: the critic shares the model instead of reading a frozen copy; the whole model is
trained, where the paper trains an adapter; advantages are whitened over the turns of the step, not of a mini-batch
of four. Measured on `craft`, whose turns all last one step, where
the paper has Overcooked and VirtualHome.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import PositiveFloat, PositiveInt, Share
from quintain.credit.gae import gae_turns
from quintain.credit.whiten import whiten
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.actions import by_action
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.types import Credit, Group, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
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
    """No further update of a step once the KL estimate per action is above this."""


def method(config: Config) -> OnPolicy:
    """Return TWOSOME as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        advantages = gae_turns(
            groups,
            estimates.critic,
            discount=config.discount,
            gae_lambda=config.gae_lambda,
            duration=duration,
        )
        return whiten(advantages, unit="turn")

    loss = by_action(combine((clip_ratio(), 1.0), (value(), 0.5), (entropy_bonus(), 0.01)))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=credit,
        update=Update(loss=loss, has_candidates=True, keeps_zeros=True, target_kl=config.target_kl),
        needs=Needs(critic=True),
    )


def duration(turn: Turn) -> float:
    """Return how many steps of the world `turn` took."""
    return float(turn.reward_terms.get("duration", 1.0))
