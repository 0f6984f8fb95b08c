"""Clip-higher, overlong shaping, a mean over tokens, no KL, a shaped outcome: GRPO-TCR (arXiv 2510.11701).

"Demystifying RL in agentic reasoning": right is 1; wrong is -1, a little less after some turns of search, at
most -0.6. Tasks are chosen for the model: those whose success in the step lies within `lowest` … `highest`
are trained on.

Differences to the paper: data is selected by the run's own episodes, group by group; a step of 8 groups of 8
instead of 64 of 16; the bonus for turns is on wrong answers only, as in the code, and its effect on the number of
calls is to be watched. There is no code tool. Measured on BabyAI and on sums of single digits that may be mended,
where the paper has mathematics, science and code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from quintain.credit.group import group_relative
from quintain.data.filters import solved_between
from quintain.errors import ConfigError
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.efficiency import overlong_penalty
from quintain.rewards.search import turn_shaped_success
from quintain.rewards.terms import apply_all
from quintain.store.run import Run
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of GRPO-TCR."""

    clip_high: float = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""
    overlong_tokens: int = 256
    """Sampled tokens of an episode at which the whole penalty of 1 falls due; it begins a quarter before."""
    lowest: float = 0.0
    """Groups solved less often than this are left out."""
    highest: float = 0.9
    """Groups solved more often than this are left out."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupJob.check(self)
        if self.lowest > self.highest:
            raise ConfigError(
                f"lowest, highest: got {self.lowest}, {self.highest}, between which no group lies; give the lower first"
            )


def method(config: Config) -> Method:
    """Return GRPO-TCR as `config` describes it."""
    overlong = overlong_penalty(config.overlong_tokens, buffer=max(config.overlong_tokens // 4, 1))

    def fitting(groups: Sequence[Group]) -> Sequence[Group]:
        return solved_between(groups, config.lowest, config.highest)

    return Method(
        collect=grouped(config.tasks, config.group_size),
        reward=partial(apply_all, terms=(turn_shaped_success(), overlong)),
        keep=fitting,
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(clipped(0.2, config.clip_high), Plan(updates=config.updates)),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
