"""DAPO (arXiv 2503.14476): GRPO with clip-higher, dynamic sampling, a mean over tokens, overlong shaping.

The upper clip is wider than the lower, so that unlikely tokens can grow; groups whose outcomes are all equal
are sampled again with other tasks until enough differ; every token of the step counts the same; an episode that
comes near its token budget loses up to `overlong_weight`.

Differences to the paper: many turns, the budget is that of the whole episode; groups sampled in excess are kept; at
most `max_draws` draws per step, and a step may be smaller than asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Ge

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.group import group_relative
from quintain.learning.train_config import ClipHigherConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import sample_until_mixed
from quintain.rewards.conduct import environment_reward
from quintain.rewards.efficiency import overlong_penalty
from quintain.rewards.terms import apply_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of DAPO."""

    renamed: ClassVar[Mapping[str, str]] = {"attempts": "max_draws"}
    """earlier names of options"""

    max_draws: PositiveInt = 3
    """Draws of tasks until enough groups differ."""
    overlong_tokens: Annotated[int, Ge(4)] = 256
    """Sampled tokens of an episode at which the whole penalty falls due; it begins a quarter before."""
    overlong_weight: NonNegativeFloat = 1.0
    """Reward lost at that length; 0 for none."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL (k3) to the starting policy in the loss."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss."""
    num_minibatches: int = 16


def method(config: Config) -> OnPolicy:
    """Return DAPO as `config` describes it."""
    buffer = config.overlong_tokens // 4
    overlong = overlong_penalty(config.overlong_tokens, buffer=buffer, weight=config.overlong_weight)
    plain = OnPolicy(
        collect=sample_until_mixed(config.tasks, config.group_size, attempts=config.max_draws),
        reward=partial(apply_all, terms=(environment_reward(), overlong)),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, config.clip_high)),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)
