"""ReST (arXiv 2308.08998): samples with the policy, imitates what clears a rising threshold, again.

Grow: sample with the policy. Improve: imitate what is worth more than τ_1 < τ_2 < ….

A step grows one collection and improves on it several times; nothing is sampled in between, and its rewards are
computed once. Improve step i minimises -E[1(R > τ_i) log π], begins with the weights of the one before it and learns
at a smaller rate. An improve step whose threshold keeps nothing is left out.

Differences to the paper: R is the outcome of an episode (a learned reward model scores translations there);
thresholds are numbers, not quantiles; the loss is the likelihood, which the paper finds best. The demonstrations are
imitated before the first step and only with `with_demonstrations` again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from quintain.config.ranges import PositiveInt, Share
from quintain.data import stages
from quintain.data.pipeline import Pipeline, Stage
from quintain.errors import ConfigError
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Improve, Rounds, no_demonstrations
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of ReST."""

    renamed: ClassVar[Mapping[str, str]] = {"rate_decay": "lr_decay"}
    """earlier names of options"""

    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: PositiveInt = 8
    """Episodes of a task."""
    thresholds: tuple[float, ...] = (0.0, 0.25, 0.5)
    """Outcome that an episode must be above to be imitated, for each improve step; they rise."""
    lr_decay: Share = 0.5
    """Learning rate of an improve step, as a share of that of the step before it."""
    with_demonstrations: bool = False
    """Whether every improve step imitates the demonstrations as well."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        RoundsConfig.check(self)
        if not self.thresholds or list(self.thresholds) != sorted(set(self.thresholds)):
            raise ConfigError(
                f"thresholds: got {self.thresholds}; give one or more that rise, such as 0, 0.25 and 0.5"
            )
        if not self.lr_decay:
            raise ConfigError("lr_decay: got 0, with which only the first improve step learns; give more")


def method(config: Config) -> Rounds:
    """Return ReST as `config` describes it."""
    first, *later = improve_steps(config.thresholds, config.lr_decay)
    return Rounds(
        collect=sample_groups(config.tasks, config.group_size),
        build=first.build,
        later=later,
        base=(lambda collector: collector.demonstrations())
        if config.with_demonstrations
        else no_demonstrations,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
    )


def improve_steps(thresholds: Sequence[float], decay: float) -> list[Improve]:
    """Return an improve step for each of `thresholds`; the rate of step i is `decay`^i, i from 0."""
    return [
        Improve(build=Pipeline(above(threshold)), rate=decay**number)
        for number, threshold in enumerate(thresholds)
    ]


def above(threshold: float) -> Stage:
    """Return the stage that keeps episodes whose outcome is above `threshold`, not those that reach it."""
    return stages.threshold(threshold, name="above")
