"""GRPO-TCR (arXiv 2510.11701): GRPO for tool calls, clip-higher, overlong shaping, no KL, a shaped outcome.

"Demystifying RL in agentic reasoning": right is 1; wrong is -1, and .1 better for every round of call and result, at
most -0.6: min(-.6, -1 + .1·(turns - 2)/2) where turns are those of its code, 2 and 2 more for every round. Tasks are
chosen for the model: those whose success in the step lies within `lowest` … `highest` are trained on.

Differences to the paper: data is selected by the run's own episodes, group by group; a step of 8 groups of 8
instead of 64 of 16; the bonus for turns is on wrong answers only, as in the code, and its effect on the number of
calls is to be watched. There is no code tool. Measured on arithmetic with tools (`calc`), where the paper
has mathematics, science and code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from annotated_types import Ge

from quintain.config.ranges import Share
from quintain.credit.group import group_relative
from quintain.data.filters import keep_solved_between
from quintain.errors import ConfigError
from quintain.learning.train_config import ClipHigherConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups
from quintain.rewards.efficiency import overlong_penalty
from quintain.rewards.search import turn_shaped_success
from quintain.rewards.terms import apply_all
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of GRPO-TCR."""

    overlong_tokens: Annotated[int, Ge(4)] = 256
    """Sampled tokens of an episode at which the whole penalty of 1 falls due; it begins a quarter before."""
    lowest: Share = 0.0
    """Groups solved less often than this are left out."""
    highest: Share = 0.9
    """Groups solved more often than this are left out."""
    num_epochs: int = 2

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ClipHigherConfig.check(self)
        if self.lowest > self.highest:
            raise ConfigError(
                f"lowest, highest: got {self.lowest}, {self.highest}, between which no group lies; give the lower first"
            )


def method(config: Config) -> OnPolicy:
    """Return GRPO-TCR as `config` describes it."""
    overlong = overlong_penalty(config.overlong_tokens, buffer=max(config.overlong_tokens // 4, 1))

    def fitting(groups: Sequence[Group]) -> Sequence[Group]:
        return keep_solved_between(groups, config.lowest, config.highest)

    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=(turn_shaped_success(), overlong)),
        keep=fitting,
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, config.clip_high)),
    )
