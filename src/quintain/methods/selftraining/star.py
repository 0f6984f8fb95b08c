"""STaR (arXiv 2203.14465): imitates what led to right answers, with hints where none did.

Each loop answers its tasks once. Those that failed are tried again with the answer of the teacher told (rationalised);
what then is right is imitated as if nothing had been told. Training begins from the starting policy in every loop, on
the data of this loop alone, for 40 optimizer steps in the first and a fifth more in each that follows. Without failures
it is rejection sampling.

Differences to the paper: answers are sampled, not greedy, unless the temperature is low; the starting policy has
imitated demonstrations in the place of examples in its prompt; the hint is what the environment's expert writes
last; what speaks of a hint, in a thought, a call or an action, is not imitated. Measured on a table of questions with
a hidden first step, where the paper has sums and common sense.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from quintain.agents.deliberation import describe_action
from quintain.agents.hints import Hints, strip_hints
from quintain.config.ranges import PositiveFloat, PositiveInt
from quintain.data.pipeline import Pipeline, Stage, check_stage
from quintain.data.seats import split_seats
from quintain.data.stages import keep_solved
from quintain.errors import ConfigError
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Collected, OptimizerSteps, Rounds
from quintain.methods.method import Collector, Needs
from quintain.types import Example, Turn

HINT = "Hint: the answer is"
MARKER = "hint"
"""What no imitated text may hold, whatever its case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of STaR."""

    tasks: PositiveInt = 128
    """Tasks of a loop, one episode each."""
    rationalises: bool = True
    """Whether tasks that failed are tried again with a hint."""
    first_updates: PositiveInt = 40
    """Optimizer steps of the first loop."""
    growth: PositiveFloat = 1.2
    """How many times more optimizer steps the next loop has."""
    batch_size: PositiveInt = 8
    """Episodes of an optimizer step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        StepRoundsConfig.check(self)
        if self.plays_apart:
            raise ConfigError(
                f"rollout: got {self.rollout} with agent {self.agent}; a task is tried twice in a loop, "
                "with a hint and without, so use rollout=lockstep and an agent of the run's own"
            )


def method(config: Config) -> Rounds:
    """Return STaR as `config` describes it."""
    return Rounds(
        collect=sample_with_hints(config.tasks, rationalises=config.rationalises),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        steps=OptimizerSteps(
            count=lambda number: updates(number, config.first_updates, config.growth),
            batch_size=config.batch_size,
        ),
        starts_over=True,
        needs=Needs(expert=config.rationalises),
    )


def updates(number: int, first: int, growth: float) -> int:
    """Return the optimizer steps of loop `number`, from 1. Example: from 40 by 1.2: 40, 48, 57, 69."""
    return math.floor(first * growth ** (number - 1) + 1e-9)


def sample_with_hints(tasks: int, *, rationalises: bool) -> Callable[[Collector, int], Collected]:
    """Return the collection of an episode of each of `tasks` tasks, and one with a hint of each that failed."""

    def collect(collector: Collector, step: int) -> Collected:
        hints = Hints()
        drawn = collector.expert_tasks(step, tasks) if rationalises else collector.tasks(step, tasks)
        groups = collector.sample(step, drawn, size=1)
        failed = [group.task for group in groups if not any(t.is_success for t in group.trajectories)]
        if rationalises and failed:
            hints.texts = {
                shown.task.id: f"{HINT} {describe_action(shown.turns[-1].action)}."
                for shown in collector.expert_episodes(failed)
                if shown.is_success
            }
        if known := [task for task in failed if task.id in hints.texts]:
            groups += collector.sample(step, known, size=1, agent=hints.wrap, again=1)
        unhinted = keep_unhinted(lambda turn: collector.decode(turn.completion.token_ids))
        return Collected(
            groups=groups, data=[Pipeline(right(), unhinted, strip_hints(hints))(split_seats(groups))]
        )

    return collect


def right() -> Stage:
    """Return the stage that keeps what solved its task."""
    return keep_solved(name="right")


def keep_unhinted(said: Callable[[Turn], str]) -> Stage:
    """Return the stage that keeps episodes in which no turn speaks of a hint, by all that was `said` in it.

    That is thought, calls and action: an action alone, as a harness reads it, has lost the thought before it.
    """

    def is_silent(example: Example) -> bool:
        return not any(MARKER in said(turn).lower() for turn in example.trajectory.turns)

    return check_stage("unhinted", "speaks of the hint", is_silent)
