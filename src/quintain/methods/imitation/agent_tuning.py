"""AgentTuning (arXiv 2310.12823): imitates agents' episodes mixed into general conversations.

J = η·E_agent[log π] + (1 - η)·E_general[log π].

Every sample of a step is with probability η one of the agents' episodes, else one of the general data: η is a share of
samples, not a weight of losses and not what the sets happen to hold. Of the agents' episodes those are kept whose
outcome reaches the threshold of their environment, and none that shares more than ten words in a row with a test.
With η = 1 or 0 this is `sft` on one set.

Differences to the paper: general data is what the parts named `general` of a mixture of environments show, or the
conversations of `corpus`, where the paper has chats of users with GPT-4 and GPT-3.5; experts act without thoughts,
which the paper has GPT-4 fill in; with `count=tokens` η is a share of tokens, to see what that changes. Measured on
`collab` and guessing a number as agents' tasks and sums of single digits as general ability.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from quintain.config.ranges import PositiveInt, Share
from quintain.data import stages
from quintain.data.mixtures import Count, measure_shares, odds
from quintain.data.pipeline import Pipeline, PipelineResult, Stage, check_stage
from quintain.errors import ConfigError, DataError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data, numbers_of
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.types import Example, Score, Trajectory

AGENT, GENERAL = "agent", "general"
CORPUS = "corpus"
"""Environment of the tasks of conversations that are general data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of AgentTuning."""

    renamed: ClassVar[Mapping[str, str]] = {"share": "agent_fraction"}
    """earlier names of options"""

    environment: str = "mix:collab,guess,sums?slips=0"
    demonstrations: int | str | None = 600
    """What is imitated: N episodes of the experts, or a file, folder, run or data set of conversations."""
    general: tuple[str, ...] = ("sums",)
    """Environments of the mixture, by their short names, whose episodes are the general data."""
    corpus: str = ""
    """More general data: a file, folder or run of conversations, with tools of their own or none; empty: none."""
    agent_fraction: Share = 0.2
    """η: the probability that a sample is of an agent's episode."""
    count: Count = "samples"
    """What η is the share of."""
    threshold: float | None = None
    """Least return of an agent's episode that is imitated; none: it solved its task."""
    thresholds: Mapping[str, str] = field(default_factory=dict[str, str])
    """The same of some environments, by their short names: web=0.67."""
    tests: str = ""
    """A file of texts of tests, one a line; what shares more than `overlap` words in a row with one is left out."""
    overlap: PositiveInt = 10
    """Words in a row that an episode may share with a test."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationConfig.check(self)
        if not (self.general or self.corpus) and self.agent_fraction < 1:
            raise ConfigError(
                f"general: got no environment of general data with agent_fraction {self.agent_fraction}; "
                "name some, or give a corpus"
            )
        limits(self)


def method(config: Config) -> Offline:
    """Return AgentTuning as `config` describes it."""

    def data(collector: Collector) -> PipelineResult:
        made = pipeline(config, collector.decode)
        chats = collector.corpus(is_apart=True) if config.corpus else []
        shown = [*collector.demonstrations(), *map(as_general, chats)]
        return choose_trajectories(shown, made, "imitating agents among general data")

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        odds=lambda examples: mixture(examples, general_of(config), config.agent_fraction, config.count),
        metrics=lambda data: shares([e for e in data if isinstance(e, Example)], config),
    )


def general_of(config: Config) -> tuple[str, ...]:
    """Return the names of environments whose episodes are general data; `CORPUS` is that of conversations."""
    return (*config.general, CORPUS)


def as_general(chat: Trajectory) -> Trajectory:
    """Return a conversation of the corpus as general data."""
    return replace(chat, task=replace(chat.task, environment=CORPUS))


def pipeline(config: Config, decode: Callable[[Sequence[int]], str]) -> Pipeline:
    """Return good enough → apart from tests."""
    enough = check_stage(
        "enough",
        "did not solve its task, or earns less than the threshold of its environment",
        lambda example: reaches(example.trajectory, limits(config), config.threshold, general_of(config)),
    )
    if not config.tests:
        return Pipeline(enough)
    return Pipeline(enough, keep_apart(read_tests(Path(config.tests)), config.overlap, decode))


def limits(config: Config) -> dict[str, float]:
    """Return the thresholds that environments have of their own.

    Raises:
        ConfigError: one is no number.
    """
    return numbers_of("thresholds", config.thresholds, "web=0.67")


def reaches(
    trajectory: Trajectory, own: Mapping[str, float], threshold: float | None, general: Collection[str]
) -> bool:
    """Return whether `trajectory` is general data, or earns what its environment asks for, rounding aside."""
    name = short(trajectory)
    if name in general:
        return True
    least, found = own.get(name, threshold), trajectory.outcome
    if least is None:
        return trajectory.is_success
    return isinstance(found, Score) and found.value >= least - 1e-9


def short(trajectory: Trajectory) -> str:
    """Return the name of the environment of `trajectory`, without options."""
    return trajectory.task.environment.partition("?")[0]


def mixture(
    examples: Sequence[Example], general: Collection[str], share: float, count: Count = "samples"
) -> list[float]:
    """Return how likely each of `examples` is to be drawn, so that `share` of samples (or of tokens) is of agents."""
    return odds(examples, part_of(general), {AGENT: share, GENERAL: 1 - share}, count)


def part_of(general: Collection[str]) -> Callable[[Example], str]:
    """Return what says whether an example is of agents or general."""
    return lambda example: GENERAL if short(example.trajectory) in general else AGENT


def shares(examples: Sequence[Example], config: Config) -> dict[str, float]:
    """Return the shares of samples and of tokens that are of agents' episodes, as they are drawn."""
    drawn = mixture(examples, general_of(config), config.agent_fraction, config.count)
    samples, tokens = measure_shares(examples, part_of(general_of(config)), drawn).get(AGENT, (0.0, 0.0))
    return {"agent_tuning/samples": samples, "agent_tuning/tokens": tokens}


def keep_apart(tests: Sequence[str], longest: int, decode: Callable[[Sequence[int]], str]) -> Stage:
    """Return the stage that keeps what shares at most `longest` words in a row with every one of `tests`."""

    def whole(trajectory: Trajectory) -> str:
        turns = trajectory.turns
        return decode([i for turn in turns for i in (*turn.prompt_ids, *turn.completion.token_ids)])

    return stages.without_overlap(tests, whole, longest + 1, name="apart")


def read_tests(file: Path) -> list[str]:
    """Return the texts in `file`, one a line.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f"tests {file}: {error.strerror}; give a file of texts, one a line") from error
