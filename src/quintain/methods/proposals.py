"""Tasks that somebody proposes, the environment or a model: what methods share that learn from these."""

from __future__ import annotations

from quintain.engines.chat_client import is_endpoint
from quintain.errors import ConfigError, DataError, UsageError
from quintain.methods.method import Collect, Collector
from quintain.rollout.proposals import Proposer
from quintain.types import Group

WORLD = "world"


def proposer_at(proposer: str) -> Proposer | None:
    """Return the model that names tasks; None where there is none.

    Raises:
        UsageError: it is no such spec.
    """
    return Proposer(proposer) if is_endpoint(proposer) else None


def check_proposer(proposer: str, max_staleness: int) -> None:
    """Raise a `ConfigError` where `proposer` is neither empty, nor `WORLD`, nor a model, or tasks are played ahead."""
    if proposer not in ("", WORLD) and not is_endpoint(proposer):
        raise ConfigError(
            f"proposer: got {proposer!r}; give {WORLD}, http://127.0.0.1:8000/v1?model=NAME, or nothing"
        )
    if proposer and max_staleness:
        raise ConfigError(
            f"proposer: got {proposer!r} with max_staleness {max_staleness}, which plays tasks ahead that nobody "
            "has proposed yet; leave it at 0"
        )
    try:
        proposer_at(proposer)
    except UsageError as error:
        raise ConfigError(str(error)) from error


def collect_proposals(tasks: int, size: int, by: Proposer | None) -> Collect:
    """Return the collection of `size` episodes of each of `tasks` proposals; what is no task is left out.

    `by` is a model; without one the environment proposes.
    """

    def collect(collector: Collector, step: int) -> list[Group]:
        asked = collector.propose_tasks(step, collector.tasks(step, tasks), by)
        known = [task for task in asked if task is not None]
        if not known:
            raise DataError(
                f"proposals of step {step}: got {len(asked)}, none of which the environment reads as a task that is "
                "not held out; take a stronger model as proposer, or proposer=world"
            )
        return collector.sample(step, known, size=size)

    return collect
