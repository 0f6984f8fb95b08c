"""AndroidGen (arXiv 2504.19298): imitates own episodes, failed ones up to the last subgoal they kept.

A critic of steps says how far the task had come before every turn. What was solved is imitated whole. Of a failure
those turns are, up to the one that last completed a subgoal: after it, the progress is higher than before, and never
falls below again. A failure without one is left out; what followed is neither imitated nor seen.

Experience helps from easy tasks to hard ones: what was solved is remembered, and the solved task that is most like a
new one is told with it, never the same one. Of the tasks that a step could play, those are played that are most like
what was solved. What is imitated is written as if nothing had been told.

Differences to the paper: the critic is the environment's `progress`, where the paper has GPT-4o split the task into
subgoals; what the last turn of a failure did is not known, so that it never counts. Likeness is the cosine of counts of
words, where the paper has Contriever, and the episode is told by what was asked and what was done. Its plans that are
written anew and its check of operations before they are carried out are no part of training and left out. Measured on a
table over an open sokoban, and what the memory finds in `craft`; the paper has Android apps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from quintain.agents.experience import Experience
from quintain.agents.hints import Hints, strip_hints
from quintain.config.ranges import PositiveInt
from quintain.data.pipeline import Pipeline, Stage, as_example, remade
from quintain.data.seats import split_seats
from quintain.environments.catalog import find
from quintain.errors import ConfigError
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, CombinedState
from quintain.methods.rl.parts.contexts import ExpertLabels, ask_progress
from quintain.rollout.initial_states import first_observation
from quintain.types import Example, Trajectory

StepCritic = Callable[[Trajectory], Sequence[float | None]]
"""episode → how far the task had come before each turn; None where that is not known"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of AndroidGen."""

    renamed: ClassVar[Mapping[str, str]] = {"reach": "oversample_factor"}
    """earlier names of options"""

    environment: str = "web"
    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: PositiveInt = 2
    """Episodes of a task."""
    failures: bool = True
    """Whether failed episodes are imitated up to their last subgoal."""
    memory: bool = True
    """Whether the solved task that is most like a new one is told with it."""
    oversample_factor: PositiveInt = 2
    """Times as many tasks as are played, of which those are taken that are most like what was solved; 1: all."""
    starts_over: bool = False
    """Train every step from the starting policy."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        RoundsConfig.check(self)
        if self.memory and self.plays_apart:
            raise ConfigError(
                f"rollout: got {self.rollout} with agent {self.agent}; some tasks of a step are played with experience "
                "and some without, so use rollout=lockstep and an agent of the run's own, or memory=false"
            )


def method(config: Config) -> Rounds:
    """Return AndroidGen as `config` describes it."""
    critic = ExpertLabels(config.environment, ask_progress)
    experience = Experience()
    return Rounds(
        collect=sample_experienced(
            config,
            experience if config.memory else Experience(),
            cut_behind_reached(critic.labels, has_failures=config.failures),
        ),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        starts_over=config.starts_over,
        state=CombinedState(experience),
        measure=lambda _groups, _decode: {"androidgen/experience": float(len(experience))},
    )


def sample_experienced(
    config: Config, experience: Experience, cut: Stage
) -> Callable[[Collector, int], Collected]:
    """Return the collection of a step's tasks, those with the solved task most like them whose likes were solved.

    What is imitated is `cut`.
    """
    make = find(config.environment)

    def collect(collector: Collector, step: int) -> Collected:
        pool = collector.tasks(step, config.tasks * (config.oversample_factor if len(experience) else 1))
        found = {
            task.id: experience.find(task.id, first_observation(make, task))
            for task in pool
            if len(experience)
        }
        # From easy to hard: a task is as near as its likeness to what was solved.
        near = {name: each[0] for name, each in found.items() if each is not None}
        chosen = sorted(pool, key=lambda task: -near.get(task.id, 0.0))[: config.tasks]
        told, alone = [t for t in chosen if t.id in near], [t for t in chosen if t.id not in near]
        hints = Hints({name: each[1].words() for name, each in found.items() if each is not None})
        groups = collector.sample(step, alone, size=config.group_size) if alone else []
        if told:
            groups += collector.sample(step, told, size=config.group_size, agent=hints.wrap, again=1)
        return Collected(groups=groups, data=[Pipeline(cut, strip_hints(hints))(split_seats(groups))])

    return collect


def cut_behind_reached(critic: StepCritic, *, has_failures: bool = True) -> Stage:
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
