"""AgentRL (arXiv 2510.04206): one policy for many environments, each with advantages on a scale of its own.

A = R - mean of the group; then A ← (A - μ_e) / σ_e over all sampled tokens of environment e in the batch.

An environment that pays thirty points for what another pays one would have nearly all of the gradient; by its own
deviation each has as much of it as it has tokens (``task/NAME/gradient_share``). What counts is the environment that
is solved least (``eval/worst_success``). Tasks are drawn where success changes, up or down, and a share of them evenly,
so that what stands still is looked at again; ``--sampling even`` draws them as the mixture weighs them.

Differences to the paper: no cross-policy sampling (turns of one episode by older weights); the baseline is the group's
mean without its deviation, which would hide scales; sampling by progress is ours, after arXiv 1707.00183. Measured on
tables of four tasks and on six worlds with a model of 0.06M parameters, where the paper has five environments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import PositiveFloat, PositiveInt, Share
from quintain.credit.group import group_relative
from quintain.credit.whiten import NormaliseBy
from quintain.curriculum.levels import Chooser, Progress, levels_in, take
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector, CombinedState, sample_groups
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of AgentRL."""

    environment: str = (
        "mix:guess,sums?digits=1&revisions=0,bandit?arms=2&gap=0.8&pulls=4,sokoban?size=3&walls=0,collab,"
        "twocards?facts=1&values=2&max_turns=2"
    )
    tasks: PositiveInt = 12
    """Tasks of a step."""
    normalise_by: NormaliseBy = "environment"
    sampling: Literal["progress", "even"] = "progress"
    """How tasks are drawn from environments of a mixture: progress, where success changes, or even, by its weights."""
    window: PositiveInt = 8
    """Tasks of an environment that its success is a mean over, where tasks are drawn by progress."""
    floor: Share = 0.5
    """Share of the tasks that is drawn evenly, where tasks are drawn by progress."""
    oversample_factor: PositiveInt = 4
    """Tasks that are looked at for each that is taken; an environment with fewer than are wanted gives fewer."""
    clip_low: PositiveFloat = 0.2
    """The ratio is clipped below at 1 - this."""
    clip_high: PositiveFloat = 0.28
    """The ratio is clipped above at 1 + this."""


def method(config: Config) -> OnPolicy:
    """Return AgentRL as `config` describes it; the loop normalises its credit by environment."""
    chooser = Progress(window=config.window, floor=config.floor)
    is_even = config.sampling == "even"
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size)
        if is_even
        else sample_by(chooser, config.tasks, config.group_size, config.oversample_factor),
        credit=lambda groups, _: group_relative(groups, std="none"),
        update=Update(loss=clip_ratio(config.clip_low, config.clip_high)),
        state=CombinedState() if is_even else CombinedState(chooser),
    )


def sample_by(chooser: Chooser, tasks: int, size: int, reach: int) -> Callable[[Collector, int], list[Group]]:
    """Return the collection of `size` episodes of each of `tasks` tasks, of environments that `chooser` draws."""

    def collect(collector: Collector, step: int) -> list[Group]:
        pool = collector.tasks(step, tasks * reach)
        levels = chooser.choose(sorted(levels_in(pool)), tasks, collector.seed("levels", step))
        return collector.sample(step, take(pool, levels), size=size)

    return collect
