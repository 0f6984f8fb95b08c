"""What methods of imitation share: data goes through a pipeline once, and is imitated at a rate that falls to 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from quintain.config.ranges import Share
from quintain.data.pipeline import Pipeline, PipelineResult, Stage, as_example, refuse_empty
from quintain.data.stages import keep_solved
from quintain.errors import ConfigError
from quintain.learning.train_config import ImitationConfig, TrainConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector, Needs
from quintain.types import NOTHING, Pair, Trajectory

Data = Callable[[Collector], PipelineResult | list[Trajectory] | list[Pair]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationsConfig(ImitationConfig):
    """A configuration that imitates what solved its task."""

    environment: str = ""
    """Where it acts: a name, as for all methods; none, or empty with conversations of a file, for the loss alone."""
    examples: int | None = None
    """How many of them are imitated, the first ones; none for all."""
    failures: bool = False
    """Whether episodes that failed are imitated, too."""
    held_out: Share = 0.1
    """Share of conversations that is not imitated; their loss is measured at every evaluation. Not of the expert's."""
    eval_every: int = 50

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationConfig.check(self)
        if self.demonstrations == 0:
            raise ConfigError("demonstrations: got 0, which leaves nothing to imitate; give 1 or more")
        most = self.demonstrations if isinstance(self.demonstrations, int) else math.inf
        if self.examples is not None and not 1 <= self.examples <= most:
            raise ConfigError(
                f"examples: got {self.examples} of {self.demonstrations} demonstrations; give 1 or more, or none"
            )


def imitate_data(
    config: TrainConfig, data: Data, *, batch_size: int, needs: Needs | None = None, **fields: Any
) -> Offline:
    """Return the method that imitates `data` in batches of episodes, without a warm start before it.

    Without `needs` it needs an expert, unless the demonstrations are conversations of others. The learning rate falls
    linearly, from its whole at the first step to the last part of it at the last. `fields` are those of `Offline`.
    """
    return Offline(
        data=data,
        update=Update(loss=imitation(), is_on_policy=False),
        batch_size=batch_size,
        lr_schedule=lambda step: 1 - (step - 1) / config.steps,
        needs=needs or Needs(expert=not isinstance(config.demonstrations, str)),
        has_warm_start=False,
        **fields,
    )


def choose_trajectories(
    trajectories: Iterable[Trajectory], pipeline: Pipeline, what: str, cures: Mapping[str, str] = NOTHING
) -> PipelineResult:
    """Return what comes out of `pipeline` for whole `trajectories`.

    Raises:
        DataError: nothing does; it begins with `what`, and `cures` says by stage what is to be done.
    """
    made = pipeline.run([as_example(trajectory) for trajectory in trajectories])
    refuse_empty(made, what, cures)
    return made


def imitate_demonstrations(
    config: DemonstrationsConfig, checks: Callable[[Collector], Stage] | None = None
) -> Offline:
    """Return the method that imitates what is left of the demonstrations of `config`, after `checks` if any."""

    def data(collector: Collector) -> PipelineResult:
        return choose_demonstrations(config, collector, *([] if checks is None else [checks(collector)]))

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        held_out=config.held_out if isinstance(config.demonstrations, str) else 0.0,
    )


def choose_demonstrations(
    config: DemonstrationsConfig, collector: Collector, *stages: Stage
) -> PipelineResult:
    """Return what is left of demonstrations that solved their task, unless `config` takes failures, after `stages`.

    Raises:
        DataError: nothing is left.
    """
    shown = collector.demonstrations()[: config.examples]
    pipeline = Pipeline(*([] if config.failures else [keep_solved()]), *stages)
    if isinstance(config.demonstrations, str):
        what, cure = f"conversations of {config.demonstrations}", "set failures"
    else:
        what, cure = "demonstrations", "raise demonstrations, or give the environment an expert_action"
    return choose_trajectories(shown, pipeline, f"imitating {len(shown)} {what}", {"solved": cure})


def numbers_of(option: str, told: Mapping[str, str], example: str) -> dict[str, float]:
    """Return the numbers that the `option` of a configuration gives to names.

    Raises:
        ConfigError: one is no number; `example` shows how it is given.
    """
    try:
        return {name: float(text) for name, text in told.items()}
    except ValueError as wrong:
        raise ConfigError(f"{option}: {wrong}; give numbers, as {example}") from None
