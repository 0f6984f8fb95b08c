"""∇J = (R - mean of earlier R) ∇log π: REINFORCE that has learned from each episode before it plays the next.

No loop does that, so the method is a class with what it needs and ``train(run, config)``. What happens in a step is all
here; `remember` and `update` are how a resumed run knows the mean that it had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from quintain.config.ranges import PositiveInt
from quintain.credit.layout import outcome_of
from quintain.credit.outcome import outcome_return
from quintain.learning.signals import SignalRecorder
from quintain.learning.update import learn
from quintain.losses.policy import reinforce
from quintain.methods import Config as SharedConfig
from quintain.methods import Needs, Update
from quintain.methods.loops.recall import remember
from quintain.methods.loops.requirements import begin_run
from quintain.rewards.terms import Term, apply_all
from quintain.store.run import Run
from quintain.types import Group, Trajectory, Use


@dataclass(frozen=True, kw_only=True)
class Config(SharedConfig):
    """Configuration of REINFORCE, one by one."""

    episodes: PositiveInt = 8
    """Episodes of a step, each of a task of its own."""


class Mean:
    """The mean of all outcomes so far, told of every recorded step."""

    def __init__(self) -> None:
        self.outcomes: list[float] = []

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of a step, or of a part of it."""
        self.outcomes += [outcome_of(t) for group in groups for t in group.scored]

    def observe(self, metrics: object) -> None:
        """Take in the metrics of a step that is done."""

    def subtract(self, groups: Sequence[Group]) -> Sequence[Group]:
        """Return `groups` that are paid by how much better they are than the mean."""
        mean = fmean(self.outcomes) if self.outcomes else 0.0

        def better(trajectory: Trajectory) -> list[float]:
            last = len(trajectory.turns) - 1
            return [outcome_of(trajectory) - mean if turn == last else 0.0 for turn in range(last + 1)]

        return apply_all(groups, terms=(Term(name="better", measure=better),))


@dataclass(frozen=True, kw_only=True)
class OneByOne:
    """The method: what it needs, and how it trains."""

    episodes: int
    needs: Needs = field(default_factory=Needs)
    update: Update = field(default_factory=lambda: Update(loss=reinforce()))

    def train(self, run: Run, config: Config) -> None:
        """Train until ``config.steps``, continuing where `run` was left."""
        with begin_run(self.needs, config, run) as context:
            mean = Mean()
            remember(run, mean)
            for step in context.steps():
                groups: list[Group] = []
                uses: list[Use] = []
                report = None
                for number, task in enumerate(context.collector.tasks(step, self.episodes)):
                    played = context.collector.sample(step, [task], size=1)
                    credit = outcome_return(mean.subtract(played))
                    mean.update(played)
                    signals = SignalRecorder() if config.records_signals else None
                    learned = learn(
                        context.policies,
                        credit,
                        self.update,
                        config,
                        step=step,
                        seed=context.seed("update", step, number),
                        has_versions=config.max_staleness > 0,
                        signals=signals,
                    )
                    report = learned or report
                    uses += signals.uses(credit, context.collector.recorded) if signals else []
                    context.serve_weights()
                    groups += played
                row = context.measure(groups, report)
                context.finish_step(step, row, uses if config.records_signals else None)


def method(config: Config) -> OneByOne:
    """Return the method as `config` describes it."""
    return OneByOne(episodes=config.episodes)
