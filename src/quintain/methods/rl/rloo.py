"""A_i = R_i - mean of the others' R in the group, then REINFORCE: leave-one-out (RLOO, arXiv 2402.14740).

R is the outcome less β times the KL of the whole episode to the starting policy. The whole episode is one action:
each of its tokens has the same advantage, nothing is divided by a deviation, nothing is clipped.

Differences to the paper: episodes have many turns; the mean is over the tokens of an episode and then over
episodes, so that long episodes do not weigh more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.credit.group import leave_one_out
from quintain.credit.penalty import add_token_rewards
from quintain.losses.policy import reinforce
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.reference import kl_in_reward
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of RLOO."""

    kl: float = 0.01
    """Weight β of the KL of an episode to the starting policy, in its reward; 0 for none."""


def method(config: Config) -> Method:
    """Return RLOO as `config` describes it."""

    def credit(work: Work, groups: Sequence[Group]) -> Credit:
        penalty = kl_in_reward(work, groups, config.kl)
        return leave_one_out(groups if penalty is None else add_token_rewards(groups, penalty))

    return Method(
        collect=grouped(config.tasks, config.group_size),
        credit=credit,
        update=policy_update(reinforce(), Plan(aggregation="sequence_mean")),
        needs=Needs(reference=config.kl > 0),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
