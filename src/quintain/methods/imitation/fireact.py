"""FireAct (arXiv 2310.05915): imitates right episodes of several teachers, each with its own way.

L = -Σ log π(a_t | h_t).

Every teacher goes about all tasks in its own way (answers at once, reads first, …), whether it fits or not. What came
out right is imitated, of all of them together; so it is the outcome that says which way is for which task. Examples of
how to act stand in no prompt. With one way, all of whose episodes are right, this is `sft`.

Differences to the paper: ways are those that the environment scripts (`methods`, `act_by`), where the paper prompts
GPT-4 by ReAct, chain of thought and Reflexion; right is the environment's success, where the paper has exact match;
loss is on the agent's tokens alone, where the published code has it on observations, too; an episode longer than
`longest` is left out and counted, where that code cuts it. Measured on `stream`; the paper has questions over
Wikipedia.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quintain.config.ranges import PositiveInt
from quintain.data import stages
from quintain.data.pipeline import Pipeline, PipelineResult
from quintain.environments.boundary import ask
from quintain.environments.catalog import find
from quintain.environments.noisy import Methodical, NoisyExpert, noisy, single_method
from quintain.errors import ConfigError, DataError, suggestion
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector, Needs
from quintain.types import Trajectory

EXPERT = "expert"
"""The way that is the environment's expert, who may know better than any single way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of FireAct."""

    renamed: ClassVar[Mapping[str, str]] = {"ways": "strategies"}
    """earlier names of options"""

    environment: str = "stream"
    demonstrations: int | str | None = 200
    """Tasks that every teacher acts on; or a file, folder, run or data set of conversations, of whatever ways."""
    strategies: tuple[str, ...] = ()
    """Ways of acting, a teacher each; none: all that the environment knows. The name expert is its expert."""
    longest: PositiveInt = 4096
    """Tokens of an episode; a longer one is left out."""


def method(config: Config) -> Offline:
    """Return FireAct as `config` describes it."""
    check_ways(config)
    made = pipeline(config.longest)

    def data(collector: Collector) -> PipelineResult:
        return choose_trajectories(
            collect_shown(config, collector), made, "imitating what teachers of one way did right"
        )

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        needs=Needs(expert=EXPERT in config.strategies and not isinstance(config.demonstrations, str)),
    )


def check_ways(config: Config) -> None:
    """Raise where a way is named that the environment does not know, before anything is played.

    Raises:
        ConfigError: naming it.
    """
    if not set(config.strategies) - {EXPERT}:
        return
    known = (EXPERT, *list_ways(config.environment))
    for way in config.strategies:
        if way not in known:
            raise ConfigError(f"ways: got {way!r} in {config.environment}; {suggestion(way, known)}")


def pipeline(longest: int) -> Pipeline:
    """Return right → short enough."""
    return Pipeline(stages.keep_solved(name="right"), stages.within(longest))


def collect_shown(config: Config, collector: Collector) -> list[Trajectory]:
    """Return what the teachers show, one after the other.

    Raises:
        DataError: no way is named, and the environment knows none.
    """
    if isinstance(config.demonstrations, str):
        return collector.demonstrations()
    ways = config.strategies or ways_of(config.environment)
    if ways == (EXPERT,):
        return collector.demonstrations()
    return collector.demonstrations(*map(teacher_of, ways))


def teacher_of(way: str) -> NoisyExpert:
    """Return the teacher who goes about all tasks in one `way`."""
    return noisy(0.0) if way == EXPERT else single_method(way)


def ways_of(environment: str) -> tuple[str, ...]:
    """Return the ways that `environment` knows.

    Raises:
        DataError: it knows none.
    """
    known = list_ways(environment)
    if not known:
        raise DataError(
            f"ways of acting in {environment}: got none that it knows; define methods and act_by, "
            "or give --strategies expert"
        )
    return known


def list_ways(environment: str) -> tuple[str, ...]:
    """Return the ways that `environment` knows, which may be none."""
    return ask(find(environment), lambda made: made.methods() if isinstance(made, Methodical) else ())
