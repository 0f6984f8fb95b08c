"""AgentEvol (arXiv 2406.04151): explores widely, imitates successes and base data, always from the base model.

The policy that has imitated demonstrations explores tasks several times each. Of a task the first success is merged
with the demonstrations, and the model as it was before any of this learns max E[r·log π] of both; then it explores
again. Rewards of environments have scales of their own, so a threshold may be given for each.

Differences to the paper: demonstrations and tasks come from one environment (`mix:` for several) unless
``demonstrations`` names a file. The paper weights by the reward and its code keeps what is above a threshold; both
are here, and with rewards of 0 and 1 they are the same. Data of this iteration alone is merged, as in the paper; its
code adds up iterations (`--memory`). Streams are never cut on the right. Measured on a table over an open sokoban,
where the paper has fourteen environments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import NonNegativeInt, PositiveInt
from quintain.credit.layout import outcome_of
from quintain.data.pipeline import Pipeline, Stage, check_stage, weigh_stage
from quintain.errors import ConfigError
from quintain.learning.train_config import PassesSection, SignalsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, Needs, sample_groups
from quintain.types import Example, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SignalsConfig, PassesSection):
    """Configuration of AgentEvol."""

    demonstrations: NonNegativeInt | str | None = 200
    """What is merged into every iteration: N episodes of the expert, or a file, folder, run or data set."""
    steps: int = 4
    """Iterations."""
    learning_rate: float = 1e-3
    num_epochs: int = 2
    num_minibatches: int = 16
    eval_every: int = 1
    tasks: PositiveInt = 64
    """Tasks that are explored in an iteration."""
    group_size: PositiveInt = 2
    """Episodes of a task."""
    thresholds: str = "0.99"
    """Outcome that an episode must be above, and that of environments by name: 0.99,babyai=0,scienceworld=99."""
    weights: Literal["filtered", "reward"] = "filtered"
    """Whether what is above the threshold counts the same, or as much as its outcome."""
    merges: bool = True
    """Whether each iteration imitates the demonstrations, too."""
    starts_over: bool = True
    """Whether each iteration trains the model as it was before it had imitated anything."""
    memory: NonNegativeInt = 1
    """Iterations whose successes are merged, the newest ones; 0 for all."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        SignalsConfig.check(self)
        read_thresholds(self.thresholds)
        if self.demonstrations is None or self.demonstrations == 0:
            raise ConfigError(
                f"demonstrations: got {self.demonstrations}, and there is no base to merge; give a number or a file"
            )


def method(config: Config) -> Rounds:
    """Return AgentEvol as `config` describes it."""
    return Rounds(
        collect=sample_groups(config.tasks, config.group_size),
        build=evolving(read_thresholds(config.thresholds), config.weights),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        base=successes_shown,
        merges_base=config.merges,
        memory=config.memory or None,
        starts_over=config.starts_over,
        has_warm_start=False,
        needs=Needs(expert=not isinstance(config.demonstrations, str)),
    )


def evolving(thresholds: Mapping[str, float], weights: str) -> Pipeline:
    """Return the pipeline of an iteration; with `weights` "reward" tokens count as much as the outcome."""
    stages = [above(thresholds), first_of_task()]
    return Pipeline(*stages, by_outcome()) if weights == "reward" else Pipeline(*stages)


def successes_shown(collector: Collector) -> Sequence[Trajectory]:
    """Return the demonstrations that solved their tasks."""
    return [trajectory for trajectory in collector.demonstrations() if trajectory.is_success]


def read_thresholds(text: str) -> Mapping[str, float]:
    """Return name of the environment → threshold; that of all others stands under the empty name.

    Raises:
        ConfigError: a number is missing or wrong.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().rpartition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            raise ConfigError(
                f"thresholds: got {part.strip()!r}; write numbers, such as 0.99,babyai=0"
            ) from None
    if "" not in found:
        raise ConfigError(
            f"thresholds: got {text!r} without one for all others; begin with a number, such as 0.99"
        )
    return found


def above(thresholds: Mapping[str, float]) -> Stage:
    """Return the stage that keeps outcomes above the threshold of their environment, found by its whole name."""

    def is_above(example: Example) -> bool:
        name = example.trajectory.task.environment.partition("?")[0].partition("/")[0]
        return outcome_of(example.trajectory) > thresholds.get(name, thresholds[""])

    return check_stage("above", "is not worth more than the threshold of its environment", is_above)


def first_of_task() -> Stage:
    """Return the stage that keeps the first example of each task."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        first: dict[str, Example] = {}
        for example in examples:
            first.setdefault(example.trajectory.task.id, example)
        return list(first.values())

    return Stage(name="first_of_task", says="is not the first of its task", apply=apply)


def by_outcome() -> Stage:
    """Return the stage that weights every token by the outcome of its episode."""
    return weigh_stage("by_outcome", "is worth nothing", lambda t: [max(outcome_of(t), 0.0)] * len(t.turns))
