"""What was known and is no longer: success on demonstrated tasks, now and before the first step.

The same tasks are played each time, once each, from the same seeds, in the world that they were demonstrated in. These
episodes are neither learned from, nor counted, nor kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quintain.config.trust import ENVIRONMENT, admit
from quintain.errors import ConfigError
from quintain.learning.train_config import TrainConfig
from quintain.runs.context import TrainingContext
from quintain.store.run import Run
from quintain.types import Task
from quintain.warm_start.demonstrations import find_source

EVENT = "known"
"""The event of a run that says how much of what was demonstrated it began with."""


class Retention:
    """Measures what of some tasks is still known: ``Retention(tasks, 64, context).lost("rl")``.

    Args:
        tasks: demonstrated ones; those of a name count once.
        count: the first so many of them are played.
        context: of the run, whose policy plays.
    """

    def __init__(self, tasks: Sequence[Task], count: int, context: TrainingContext) -> None:
        """Measure what is known before the first step; a resumed run reads that in its journal.

        Raises:
            ConfigError: nobody knows in which world the demonstrations were played, or the policy cannot act there.
        """
        self.tasks = list({task.id: task for task in tasks}.values())[:count]
        self.context = context
        self.rollout = context.elsewhere(world_of(context.config))
        told = [event["data"]["success"] for event in context.run.events() if event["kind"] == EVENT]
        if not told:
            told = [self.success()]
            context.run.event(
                EVENT, f"{told[0]:.1%} of {len(self.tasks)} demonstrated tasks at the start", success=told[0]
            )
        self.start = float(told[0])

    def success(self) -> float:
        """Return the share of the tasks that the policy solves as it is now."""
        self.context.serve_weights()
        self.context.display.phase("known tasks", len(self.tasks))
        groups = self.rollout.groups(
            self.tasks,
            size=1,
            seed=self.context.seed("known"),
            on_episode=lambda _: self.context.display.advance(),
        )
        return sum(group.trajectories[0].is_success for group in groups) / len(self.tasks)

    def lost(self, stage: str) -> dict[str, float]:
        """Return ``forgetting/STAGE``, the fall of success since the start, and ``forgetting/start``, what it was."""
        return {f"forgetting/{stage}": self.start - self.success(), "forgetting/start": self.start}


def world_of(config: TrainConfig) -> str:
    """Return the environment that the demonstrations of `config` were played in.

    Raises:
        ConfigError: they are conversations, whose tasks cannot be played again, or of a run of somebody else's whose
            environment is another.
    """
    if not isinstance(config.demonstrations, str):
        return config.environment
    source = find_source(config.demonstrations)
    if not source.is_run:
        raise ConfigError(
            f"known: got demonstrations {Path(config.demonstrations).name}, conversations whose tasks cannot be "
            "played; give a run as demonstrations, or known=0"
        )
    with Run.open(source.path, writable=False) as run:
        if run.config["environment"] != config.environment:
            admit(
                run, is_trusted=False, to="playing the tasks of", fields=ENVIRONMENT, otherwise="give known=0"
            )
        return str(run.config["environment"])
