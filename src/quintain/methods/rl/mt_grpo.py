"""MT-GRPO (arXiv 2505.11821): turns before the last have credit of their own beside the outcome.

A_k = A_outcome + λ A_turn,k before the last turn, A_outcome on it.

The reward of a turn (its action was carried out, and whatever the environment pays for it) is compared with that of
the same turn of the other episodes of the task; the outcome is the reward of the last turn.

Differences to the paper: any number of turns, compared by their number; the turn reward is `pay_executed` for an action
that could be carried out plus the environment's own. The loss mask never touches attention: observations are read.
The reward of the last turn, `pay_executed` included, is the outcome; an episode of one turn has nothing else (the code
then normalises outcome and turn reward together); groups have 8 episodes instead of 21. Measured on synthetic
questions of one hop (`hopqa`) and on BabyAI, where the paper searches Wikipedia.
"""

from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat
from quintain.credit.turn_group import turn_group_relative
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.rewards.conduct import environment_reward, pay_executed
from quintain.rewards.terms import apply_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of MT-GRPO."""

    turn_weight: NonNegativeFloat = 1.0
    """λ, weight of the turn's advantage."""
    executed: NonNegativeFloat = 0.2
    """Reward of a turn whose action was carried out; 0 leaves the environment's own."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return MT-GRPO as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=(environment_reward(), pay_executed(config.executed))),
        credit=lambda groups, _: turn_group_relative(groups, weight=config.turn_weight),
        update=Update(loss=clip_ratio()),
        needs=Needs(turn_rewards=True),
    )
