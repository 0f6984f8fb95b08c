"""AgentGen (arXiv 2408.00764): imitates plans in made-up domains, of tasks made easier and harder.

L = -Σ log π(a_t | h_t).

First the environments: domains are drawn and checked, each with things, a start and a goal. Then their tasks: each is
taken as it is, made easier or made harder, so that lengths of plans lie close together (`plan?evolved=mixed`). A
planner shows each, in words. What differs from another task in names alone is left out; with `min_steps` and
`max_steps` plans of some lengths stay, such as those of a single difficulty.

Differences to the paper: a grammar over lists of words draws the domains, where the paper has a language model write
them from pieces of a corpus; a file may give one (`plan?domain=FILE.json`), which is checked as strictly. Evolving
changes the goal and is measured by the shortest plan, where the paper asks a language model for easier and for harder;
the planner is exact. Measured on domains that no training task has.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from quintain.config.ranges import PositiveInt
from quintain.data import stages
from quintain.data.pipeline import Pipeline, PipelineResult, Stage
from quintain.environments.catalog import find
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import begin
from quintain.errors import ConfigError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.types import Example, Trajectory, as_text

WIDTH = 4
"""Lengths of plans that are counted together."""
Keys = Callable[[Sequence[Trajectory]], Sequence[Hashable]]
"""episodes → what is the same for tasks that differ in names alone"""


@runtime_checkable
class Renamable(Protocol):
    """The environment knows which of its tasks differ in names alone."""

    def task_key(self) -> str:
        """Return what is the same for the task at hand and for others that differ from it in names alone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of AgentGen."""

    renamed: ClassVar[Mapping[str, str]] = {"least_steps": "min_steps", "most_steps": "max_steps"}
    """earlier names of options"""

    environment: str = "plan?domain=drawn&evolved=mixed"
    demonstrations: int | str | None = 400
    """Tasks that the planner shows; or a file, folder, run or data set of conversations."""
    min_steps: PositiveInt = 1
    """Fewest turns of an episode that is imitated."""
    max_steps: PositiveInt | None = None
    """Most turns of an episode that is imitated; none: any number."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationConfig.check(self)
        if self.max_steps is not None and self.max_steps < self.min_steps:
            raise ConfigError(
                f"min_steps: got {self.min_steps} with max_steps {self.max_steps}; give the smaller first"
            )


def method(config: Config) -> Offline:
    """Return AgentGen as `config` describes it."""

    def data(collector: Collector) -> PipelineResult:
        made = pipeline(keys_in(collector.environment), config.min_steps, config.max_steps)
        return choose_trajectories(collector.demonstrations(), made, "imitating plans in made domains")

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        is_first=True,
        metrics=lambda data: histogram([len(e.trajectory.turns) for e in data if isinstance(e, Example)]),
    )


def pipeline(keys: Keys, least: int, most: int | None) -> Pipeline:
    """Return solved → no task twice → of as many turns as are wanted."""
    return Pipeline(stages.keep_solved(), new_tasks(keys), stages.num_turns(least, most))


def new_tasks(keys: Keys) -> Stage:
    """Return the stage that keeps the first example of those whose tasks differ in names alone."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        found: dict[Hashable, Example] = {}
        for key, example in zip(keys([e.trajectory for e in examples]), examples, strict=True):
            found.setdefault(key, example)
        return list(found.values())

    return Stage(name="new_tasks", says="repeats a task but for its names", apply=apply)


def keys_in(environment: str) -> Keys:
    """Return the keys of tasks as `environment` knows them, by what is read first where it does not."""

    def keys(trajectories: Sequence[Trajectory]) -> list[Hashable]:
        read = [as_text(t.turns[0].observation) for t in trajectories]
        if environment == NO_ENVIRONMENT:
            return list(read)
        with closing(find(environment)()) as made:
            if not isinstance(made, Renamable):
                return list(read)
            found: list[Hashable] = []
            for trajectory in trajectories:
                begin(made, trajectory.task)
                found.append(made.task_key())
        return found

    return keys


def histogram(lengths: Sequence[int]) -> Mapping[str, float]:
    """Return the share of episodes by their turns, four numbers together: ``agent_gen/steps_1-4``, …

    Example: of lengths 1, 4, 5 and 12, half are in 1-4, a quarter in 5-8 and in 9-12 each.
    """
    counts = Counter((length - 1) // WIDTH for length in lengths)
    return {
        f"agent_gen/steps_{WIDTH * part + 1}-{WIDTH * (part + 1)}": count / len(lengths)
        for part, count in sorted(counts.items())
    }
