"""RLSP (arXiv 2502.06773): PPO with a bonus for thinking long beside a right answer.

R = α·right + (1 - α)·(1 - c^tokens of a turn), the KL in the reward.

Two signals that are kept apart: the verifier's for the outcome, and one for searching, paid whether or not the
answer is right, unless the text repeats itself. With α = 1 it is plain reinforcement learning from verifiable
rewards.

Differences to the paper: constants are ours (it gives none); no supervised stage on search traces of its own; the
two signals are logged as ``reward/success`` and ``reward/search``. The search term is the mean over turns: thinking
longer in a turn pays, more turns do not. Measured on Sokoban and on sums of single digits that may be mended; the
paper has mathematics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveInt, Share
from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.kl import price_kl
from quintain.rewards.conduct import success
from quintain.rewards.search import search_bonus
from quintain.rewards.terms import apply_all
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of RLSP."""

    renamed: ClassVar[Mapping[str, str]] = {"outcome_share": "outcome_fraction"}
    """earlier names of options"""

    num_epochs: PositiveInt = 2
    outcome_fraction: Share = 0.8
    """α, share of the outcome in the reward."""
    base: float = 0.98
    """c of the search reward: the mean over turns of 1 - c^tokens."""
    has_gate: bool = True
    """No search reward for text that repeats itself."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight of the KL to the starting policy in the reward; 0 for none."""


def method(config: Config) -> OnPolicy:
    """Return RLSP as `config` describes it."""
    share = config.outcome_fraction
    search = search_bonus(base=config.base, has_gate=config.has_gate, weight=1 - share)

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        values = replace(estimates.critic, token_rewards=price_kl(groups, estimates, config.kl_coef))
        return whiten(gae_tokens(groups, values, gae_lambda=1.0))

    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        reward=partial(apply_all, terms=(success(share), search)),
        credit=credit,
        update=Update(loss=combine((clip_ratio(), 1.0), (value(), 0.5)), keeps_zeros=True),
        needs=Needs(critic=True, reference=config.kl_coef > 0, reference_logprobs=config.kl_coef > 0),
    )
