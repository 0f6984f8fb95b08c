"""What methods of imitation share: data goes through a pipeline once, and is imitated at a rate that falls to 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quintain.data.pipeline import Chosen, Pipeline, as_example, refuse_empty
from quintain.errors import ConfigError
from quintain.learning.job import Job
from quintain.losses.imitation import imitation
from quintain.methods.method import Collector, Needs, Offline, Update
from quintain.types import NOTHING, Pair, Trajectory

Data = Callable[[Collector], Chosen | list[Trajectory] | list[Pair]]


def supervised(
    config: Job, data: Data, *, batch_size: int, needs: Needs | None = None, **fields: Any
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


def chosen_of(
    trajectories: Iterable[Trajectory], pipeline: Pipeline, what: str, cures: Mapping[str, str] = NOTHING
) -> Chosen:
    """Return what comes out of `pipeline` for whole `trajectories`.

    Raises:
        DataError: nothing does; it begins with `what`, and `cures` says by stage what is to be done.
    """
    made = pipeline.run([as_example(trajectory) for trajectory in trajectories])
    refuse_empty(made, what, cures)
    return made


def numbers_of(option: str, told: Mapping[str, str], example: str) -> dict[str, float]:
    """Return the numbers that the `option` of a configuration gives to names.

    Raises:
        ConfigError: one is no number; `example` shows how it is given.
    """
    try:
        return {name: float(text) for name, text in told.items()}
    except ValueError as wrong:
        raise ConfigError(f"{option}: {wrong}; give numbers, as {example}") from None
