"""Imitate own episodes, those that failed up to their last subgoal that was reached and kept: AndroidGen (2504.19298).

A critic of steps says how far the task had come before every turn. What was solved is imitated whole. Of a failure
those turns are, up to the one that last completed a subgoal: after it, the progress is higher than before, and never
falls below again. A failure without one is left out; what followed is neither imitated nor seen.

Differences to the paper: the critic is the environment's `progress`, where the paper has GPT-4o split the task into
subgoals; what the last turn of a failure did is not known, so that it never counts. Its search for similar solved
tasks, its plans that are written anew and its check of operations before they are carried out are no part of training
and left out. Measured on `web`; the paper has Android apps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quintain.config.ranges import PositiveInt
from quintain.data.pipeline import Pipeline, Stage, as_example, remade
from quintain.losses.imitation import imitation
from quintain.methods.imitation.atlas import ask_progress
from quintain.methods.method import Rounds, Update, grouped
from quintain.methods.rl.parts.contexts import ExpertLabels
from quintain.training.job import OnPolicyJob
from quintain.types import Example, Trajectory

StepCritic = Callable[[Trajectory], Sequence[float | None]]
"""episode → how far the task had come before each turn; None where that is not known"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyJob):
    """Configuration of AndroidGen."""

    environment: str = "web"
    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: PositiveInt = 2
    """Episodes of a task."""
    failures: bool = True
    """Whether failed episodes are imitated up to their last subgoal."""
    starts_over: bool = False
    """Train every step from the starting policy."""


def method(config: Config) -> Rounds:
    """Return AndroidGen as `config` describes it."""
    critic = ExpertLabels(config.environment, ask_progress)
    return Rounds(
        collect=grouped(config.tasks, config.group_size),
        build=Pipeline(reached(critic.labels, has_failures=config.failures)),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        starts_over=config.starts_over,
    )


def reached(critic: StepCritic, *, has_failures: bool = True) -> Stage:
    """Return the stage that cuts failures behind the last subgoal that was reached and kept."""

    def make(example: Example) -> list[Example]:
        trajectory = example.trajectory
        if trajectory.is_success:
            return [example]
        num = num_kept(critic(trajectory)) if has_failures else 0
        if not num:
            return []
        cut = replace(trajectory, turns=trajectory.turns[:num])
        return [replace(as_example(cut), sources=example.sources)]

    return remade(
        "reached", "failed without reaching and keeping a subgoal, or is cut behind the last one", make
    )


def num_kept(before: Sequence[float | None]) -> int:
    """Return how many turns there are up to the last that completed a subgoal for good; `before` each, the progress.

    Example: 0, 0, .5, 0, .5, .5 → 4: turn 3 reached .5 again and kept it, turn 1 did not.
    """
    found = 0
    for turn in range(len(before) - 1):
        old, new = before[turn], before[turn + 1]
        if old is None or new is None or new <= old:
            continue
        if all(later is None or later >= new for later in before[turn + 2 :]):
            found = turn + 1
    return found
