"""OpenManus-RL (2025, its repository): GiGPO's two levels, sampled until the groups of a step differ.

Steps carry the task, the episode and whether the action was valid; the outcome reaches every step of its
episode, invalid actions cost, and groups without a difference are sampled again with other tasks (dynamic
sampling).

Differences to the code: episodes that ended are not stepped on; a group is the episodes of one task, never all
rows; the reward of an episode is counted once. No headline number of theirs could be verified. Its scripts of PPO
with a critic, its data, and the tree search and process rewards of its plans are left out. Measured on BabyAI, where
it names ALFWorld, WebShop and others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.anchor import state_anchored
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_until_mixed
from quintain.rewards.conduct import environment_reward, invalid_action_penalty
from quintain.rewards.terms import apply_all
from quintain.types import Group, is_constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of OpenManus-RL."""

    renamed: ClassVar[Mapping[str, str]] = {"attempts": "max_draws"}
    """earlier names of options"""

    max_draws: PositiveInt = 3
    """Draws of tasks until enough groups differ."""
    step_weight: NonNegativeFloat = 1.0
    """ω, weight of the advantage among equal states."""
    invalid_penalty: NonNegativeFloat = 0.1
    """Reward lost by an action that cannot be carried out."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight of the KL (k3) to the starting policy in the loss; 0 for none."""


def method(config: Config) -> OnPolicy:
    """Return OpenManus-RL as `config` describes it."""
    has_kl = config.kl_coef > 0
    loss = combine((clip_ratio(), 1.0), (kl_penalty("k3"), config.kl_coef)) if has_kl else clip_ratio()
    terms = (environment_reward(), invalid_action_penalty(config.invalid_penalty))
    return OnPolicy(
        collect=sample_until_mixed(config.tasks, config.group_size, attempts=config.max_draws),
        reward=partial(apply_all, terms=terms),
        keep=keep_mixed,
        credit=lambda groups, _: state_anchored(groups, weight=config.step_weight),
        update=Update(loss=loss, keeps_zeros=has_kl, has_reference=has_kl),
        needs=Needs(reference=has_kl, state_keys=True),
    )


def keep_mixed(groups: Sequence[Group]) -> list[Group]:
    """Return those of `groups` whose episodes differ in what the environment paid, before what invalid actions cost."""
    paid = [
        [sum(turn.reward_terms["environment"] for turn in t.turns) for t in group.scored] for group in groups
    ]
    return [group for group, own in zip(groups, paid, strict=True) if not is_constant(own)]
