"""NAT (arXiv 2402.11651): imitates failures, too, each under a label that says so.

L = -Σ log π(a_t | label, h_t).

Every demonstration's first prompt says how the attempt is to turn out: `right` where it solved its task, `wrong` where
it did not, or `partly` where it failed with a part of the reward (NAT-2, ``levels=3``). All of them are imitated; the
policy acts under `right`, by its harness ``label_episodes+…``. With the label `right` alone this is `sft`.

A file or run of demonstrations is a log of successes and failures: a row says which it is by ``is_success``, ``reward``
or ``label``, and the sentence of its label stands behind what it shows first, in its own words or in an environment.

Differences to the paper: labels are two sentences, where the paper's ask for a right or for a wrong answer; the teacher
is the environment's expert with `--expert-noise` unless a log is given, where the paper samples GPT-3.5; right is the
environment's success.
Ends of turns are trained where the agent wrote them, and nothing that it read, where the code also trains an end
after the last observation; an episode that a limit cut is no failure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.agents.labelled import SENTENCES, Label
from quintain.config.ranges import NonNegativeFloat
from quintain.data.pipeline import Pipeline, PipelineResult, Stage
from quintain.data.records import Record
from quintain.data.stages import keep_ended
from quintain.errors import ConfigError, DataError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.types import Example, Score, Trajectory

MISTAKES = 0.3
HARNESS = "labelled"
"""The wrapper that says a label; the configuration's agent has it in front, under the label `right`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of NAT."""

    environment: str = "collab"
    agent: str = f"{HARNESS}+auto"
    steps: int = 300
    demonstrations: int | str | None = 600
    """Episodes of the teacher, failures among them; or a file, folder, run or data set of successes and failures."""
    expert_noise: float = MISTAKES
    """Share of the expert's turns in demonstrations in which it does something else; of no meaning for a file."""
    levels: Literal[2, 3] = 2
    """Labels: right and wrong, or partly between them for failures with a part of the reward."""
    failures: NonNegativeFloat = 2.0
    """Most failures for each success; the first ones stay. 0 imitates successes alone."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        is_file = isinstance(self.demonstrations, str)
        if is_file and self.expert_noise not in (MISTAKES, 0):
            raise ConfigError(
                f"expert_noise: got {self.expert_noise} with the conversations {self.demonstrations}, in which no "
                "expert acts; leave it out"
            )
        ImitationConfig.check(replace(self, expert_noise=0.0) if is_file else self)
        if self.agent.split("+")[0] != HARNESS:
            raise ConfigError(f"agent: got {self.agent}, which says no label; put {HARNESS}+ in front of it")

    def opening_words(self, record: Record) -> str:
        """Return the sentence that stands behind what `record`, of a file, shows first: how it turned out."""
        reward = record.fields.get("reward")
        value = float(reward) if isinstance(reward, int | float) else 0.0
        return SENTENCES[label_of(record.fields.get("is_success") is not False, value, self.levels)]


def method(config: Config) -> Offline:
    """Return NAT as `config` describes it."""

    def data(collector: Collector) -> PipelineResult:
        if isinstance(config.demonstrations, str):
            log = both_kinds(collector.demonstrations(), config.demonstrations)
            return choose_trajectories(log, pipeline(config.failures), "imitating successes and failures")
        labels = ("right", "wrong", "partly")[: config.levels]
        inner = config.agent.removeprefix(HARNESS)
        shown = {
            label: collector.demonstrations(
                **({} if label == "right" else {"agent": f"{HARNESS}?label={label}{inner}"})
            )
            for label in labels
        }
        told = label_episodes(shown)
        return choose_trajectories(told, pipeline(config.failures), "imitating successes and failures")

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        metrics=lambda made: shares([each for each in made if isinstance(each, Example)]),
    )


def label_of(is_success: bool, value: float, levels: int = 2) -> Label:
    """Return how an episode that came to `value` turned out."""
    if is_success:
        return "right"
    return "partly" if levels == 3 and value > 0 else "wrong"


def label_episodes(shown: dict[str, list[Trajectory]]) -> list[Trajectory]:
    """Return every episode as it is shown under the label of how it turned out.

    `shown` has the same episodes, in the same order, under every label.
    """
    found: list[Trajectory] = []
    for place, trajectory in enumerate(shown["right"]):
        value = trajectory.outcome.value if isinstance(trajectory.outcome, Score) else 0.0
        found.append(shown[label_of(trajectory.is_success, value, len(shown))][place])
    return found


def both_kinds(log: list[Trajectory], source: str) -> list[Trajectory]:
    """Return the episodes `log` of `source`, of which some succeeded and some failed.

    Raises:
        DataError: all are of one kind, so that a label would say nothing.
    """
    solved = sum(each.is_success for each in log)
    if not 0 < solved < len(log):
        kind = "successes" if solved else "failures"
        raise DataError(
            f"demonstrations of {source}: got {len(log):,} {kind} alone; say in is_success, reward or label of each "
            "row how it turned out, or imitate all with sft"
        )
    return log


def pipeline(failures: float) -> Pipeline:
    """Return ended → at most `failures` for each success."""
    return Pipeline(keep_ended(), at_most(failures))


def at_most(failures: float) -> Stage:
    """Return the stage that keeps all successes, and of the failures the first, at most `failures` for each success."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        room = int(failures * sum(example.trajectory.is_success for example in examples) + 1e-9)
        found: list[Example] = []
        for example in examples:
            if not example.trajectory.is_success:
                room -= 1
                if room < 0:
                    continue
            found.append(example)
        return found

    return Stage(name="failures", says=f"is one failure more than {failures:g} for each success", apply=apply)


def shares(examples: Sequence[Example]) -> dict[str, float]:
    """Return the share of successes among what is imitated."""
    return {"nat/successes": sum(e.trajectory.is_success for e in examples) / max(1, len(examples))}
