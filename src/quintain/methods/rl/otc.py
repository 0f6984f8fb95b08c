"""OTC-GRPO (arXiv 2504.14870): few tool calls are worth more, where the answer is right.

R = right · economy(m, n).

m is the calls of the episode but for its answer, n the fewest of any right answer to the task that the run has seen,
this step included. The factor is highest at m = n. A wrong answer gains nothing by calling less.

Differences to the paper: right is the environment's success; with `--count turns` turns are counted, and without it
an environment that has no tools is refused. Tool productivity, right answers per call, is logged. OTC-PPO's factor,
without a memory, is the reward term `economy` of `policy_gradient`. Measured on synthetic questions, half of them
told with their facts, from a policy that imitated needless searches; the paper has search and mathematics with code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import PositiveFloat
from quintain.credit.group import group_relative
from quintain.learning.train_config import ClipHigherConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import CombinedState, Needs, sample_groups
from quintain.rewards.conduct import success
from quintain.rewards.efficiency import FewestCalls, num_calls, num_turns, productivity
from quintain.rewards.terms import apply_all
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of OTC."""

    count: Literal["calls", "turns"] = "calls"
    """What is to be few."""
    smoothing: PositiveFloat = 4.0
    """c of the factor while the fewest is not known or 0."""


def method(config: Config) -> OnPolicy:
    """Return OTC as `config` describes it."""
    count = num_calls if config.count == "calls" else num_turns
    fewest = FewestCalls(count)

    def economical(groups: Sequence[Group]) -> Sequence[Group]:
        right = success()
        return apply_all(groups, (right, fewest.term(right, smoothing=config.smoothing)))

    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=economical,
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, config.clip_high), aggregation="sequence_mean"),
        needs=Needs(tools=config.count == "calls"),
        state=CombinedState(fewest),
        measure=lambda groups, _: {"otc/productivity": productivity(groups, count)},
    )
