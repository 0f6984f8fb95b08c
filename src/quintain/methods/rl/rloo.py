"""RLOO (arXiv 2402.14740): REINFORCE with the mean of the group's other episodes as baseline.

A_i = R_i - mean of the others' R in the group.

R is the outcome less β times the KL of the whole episode to the starting policy. The whole episode is one action:
each of its tokens has the same advantage, nothing is divided by a deviation, nothing is clipped.

Differences to the paper: episodes have many turns; the mean is over the tokens of an episode and then over
episodes, so that long episodes do not weigh more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat
from quintain.credit.group import leave_one_out
from quintain.credit.penalty import add_token_rewards
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import reinforce
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.kl import price_kl
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of RLOO."""

    kl_coef: NonNegativeFloat = 0.01
    """Weight β of the KL of an episode to the starting policy, in its reward; 0 for none."""


def method(config: Config) -> OnPolicy:
    """Return RLOO as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        penalty = price_kl(groups, estimates, config.kl_coef)
        return leave_one_out(groups if penalty is None else add_token_rewards(groups, penalty))

    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=credit,
        update=Update(loss=reinforce(), aggregation="sequence_mean"),
        needs=Needs(reference=config.kl_coef > 0, reference_logprobs=config.kl_coef > 0),
    )
