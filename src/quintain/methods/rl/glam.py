"""GLAM (arXiv 2302.02662): PPO over whole actions, scored by the model among the legal ones.

π(a) = softmax over the legal actions of Σ_i log p(a_i | h, a_<i).

The model does not write freely: it scores each legal action as a whole and one is drawn by its probability, so
every action is legal from the first step on. A value head and generalised advantage estimation; policy and
value are clipped.

Ratio, clip and entropy are those of whole actions: log π(a) is normalised over all legal ones, which are computed with
the chosen one (`quintain.losses.actions`).

Differences to the official code: log-probs are summed, not raw logits, and padding adds nothing; the value is read at
the last prompt token of a turn. Advantages are whitened over the turns of a step, which the code does not; the prompt
holds the whole episode instead of the last three observations; the model is a small decoder that imitated before, not
Flan-T5. Measured on one small room of BabyAI and on keys and doors (`keydoor`), where the paper has a mixture of its
tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

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
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import apply_all
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of GLAM."""

    agent: str = "glam"
    """Harness that scores whole actions by the sum of their log-probs."""
    episodes: PositiveInt = 32
    num_epochs: int = 4
    discount: Share = 0.99
    """γ per turn."""
    gae_lambda: Share = 0.99
    """λ of generalised advantage estimation, per turn."""
    reward_scale: PositiveFloat = 1.0
    """What rewards are multiplied by; the paper has 20."""


def method(config: Config) -> OnPolicy:
    """Return GLAM as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        advantages = gae_turns(
            groups, estimates.critic, discount=config.discount, gae_lambda=config.gae_lambda
        )
        return whiten(advantages, unit="turn")

    loss = by_action(combine((clip_ratio(), 1.0), (value(clip=0.2), 0.5), (entropy_bonus(), 0.01)))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        reward=partial(apply_all, terms=(environment_reward(config.reward_scale),)),
        credit=credit,
        update=Update(loss=loss, has_candidates=True, keeps_zeros=True, has_values=True),
        needs=Needs(critic=True),
    )
