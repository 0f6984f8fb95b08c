"""A_i = R_i - c·tokens_i, less the mean of the others': RLOO with a price for length."""

from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat
from quintain.credit.group import leave_one_out
from quintain.losses.policy import reinforce
from quintain.methods import GroupConfig, OnPolicy, Update, sample_groups
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import Term, apply_all
from quintain.types import Trajectory


@dataclass(frozen=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of RLOO with a price for length."""

    price: NonNegativeFloat = 0.01
    """Reward lost by each sampled token."""


def length(trajectory: Trajectory) -> list[float]:
    """Return the tokens sampled in each turn."""
    return [float(len(turn.completion.token_ids)) for turn in trajectory.turns]


def method(config: Config) -> OnPolicy:
    """Return the method as `config` describes it."""
    terms = (environment_reward(), Term(name="length", measure=length, weight=-config.price))
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=terms),
        credit=lambda groups, _: leave_one_out(groups),
        update=Update(loss=reinforce(), aggregation="sequence_mean"),
    )
