"""L = -Σ log π(a_t | label, h_t), failures among the demonstrations, each under its label: NAT (arXiv 2402.11651).

Every demonstration's first prompt says how the attempt is to turn out: `right` where it solved its task, `wrong` where
it did not, or `partly` where it failed with a part of the reward (NAT-2, ``levels=3``). All of them are imitated; the
policy acts under `right`, by its harness ``labelled+…``. With the label `right` alone this is `sft`.

Differences to the paper: labels are two sentences, where the paper's ask for a right or for a wrong answer; the teacher
is the environment's expert with `--mistakes`, where the paper samples GPT-3.5; right is the environment's success.
Ends of turns are trained where the agent wrote them, and nothing that it read, where the code also trains an end
after the last observation; an episode that a limit cut is no failure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import NonNegativeFloat
from quintain.data.pipeline import Chosen, Pipeline, Stage
from quintain.data.stages import ended
from quintain.errors import ConfigError
from quintain.methods.imitation.supervised import chosen_of, supervised
from quintain.methods.method import Collector, Offline
from quintain.training.job import ImitationJob
from quintain.types import Example, Score, Trajectory

HARNESS = "labelled"
"""The wrapper that says a label; the job's agent has it in front, under the label `right`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationJob):
    """Configuration of NAT."""

    environment: str = "collab"
    agent: str = f"{HARNESS}+auto"
    steps: int = 300
    demonstrations: int | str | None = 600
    """Episodes of the teacher, failures among them."""
    mistakes: float = 0.3
    levels: Literal[2, 3] = 2
    """Labels: right and wrong, or partly between them for failures with a part of the reward."""
    failures: NonNegativeFloat = 2.0
    """Most failures for each success; the first ones stay. 0 imitates successes alone."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationJob.check(self)
        if self.agent.split("+")[0] != HARNESS:
            raise ConfigError(f"agent: got {self.agent}, which says no label; put {HARNESS}+ in front of it")
        if isinstance(self.demonstrations, str):
            raise ConfigError(
                f"demonstrations: got {self.demonstrations}, whose prompts are written; give a number of episodes"
            )


def method(config: Config) -> Offline:
    """Return NAT as `config` describes it."""

    def data(collector: Collector) -> Chosen:
        labels = ("right", "wrong", "partly")[: config.levels]
        inner = config.agent.removeprefix(HARNESS)
        shown = {
            label: collector.demonstrations(
                **({} if label == "right" else {"agent": f"{HARNESS}?label={label}{inner}"})
            )
            for label in labels
        }
        told = labelled(shown)
        return chosen_of(told, pipeline(config.failures), "imitating successes and failures")

    return supervised(
        config,
        data,
        batch_size=config.batch_size,
        metrics=lambda made: shares([each for each in made if isinstance(each, Example)]),
    )


def label_of(trajectory: Trajectory, levels: int = 2) -> str:
    """Return how `trajectory` turned out."""
    if trajectory.is_success:
        return "right"
    has_part = isinstance(trajectory.outcome, Score) and trajectory.outcome.value > 0
    return "partly" if levels == 3 and has_part else "wrong"


def labelled(shown: dict[str, list[Trajectory]]) -> list[Trajectory]:
    """Return every episode as it is shown under the label of how it turned out.

    `shown` has the same episodes, in the same order, under every label.
    """
    return [shown[label_of(trajectory, len(shown))][place] for place, trajectory in enumerate(shown["right"])]


def pipeline(failures: float) -> Pipeline:
    """Return ended → at most `failures` for each success."""
    return Pipeline(ended(), at_most(failures))


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
