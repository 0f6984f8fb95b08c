"""R = right · economy(m, n): few calls count only where the answer is right: OTC-GRPO (arXiv 2504.14870).

m is the calls of the episode, n the fewest of any right answer to the task that the run has seen, this step
included. The factor is highest at m = n. A wrong answer gains nothing by calling less.

Differences to the paper: right is the environment's success; with `--count turns` turns are counted, and without it
an environment that has no tools is refused. Tool productivity, right answers per call, is logged. OTC-PPO's factor,
without a memory, is the reward term `economy` of `policy_gradient`. Measured on synthetic questions, half of them
told with their facts, from a policy that imitated needless searches; the paper has search and mathematics with code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quintain.credit.group import group_relative
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.conduct import success
from quintain.rewards.efficiency import FewestCalls, num_calls, num_turns, productivity
from quintain.rewards.terms import apply_all
from quintain.store.run import Run
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of OTC."""

    count: Literal["calls", "turns"] = "calls"
    """What is to be few."""
    smoothing: float = 4.0
    """c of the factor while the fewest is not known or 0."""
    clip_high: float = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""


def method(config: Config) -> Method:
    """Return OTC as `config` describes it."""
    count = num_calls if config.count == "calls" else num_turns
    fewest = FewestCalls(count)

    def economical(groups: Sequence[Group]) -> Sequence[Group]:
        right = success()
        return apply_all(groups, (right, fewest.term(right, smoothing=config.smoothing)))

    return Method(
        collect=grouped(config.tasks, config.group_size),
        reward=economical,
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(clipped(0.2, config.clip_high), Plan(aggregation="sequence_mean")),
        needs=Needs(tools=config.count == "calls"),
        memory=fewest,
        measure=lambda groups: {"otc/productivity": productivity(groups, count)},
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
