"""The list of runs in a folder, for people and dashboards.

A run that cannot be read is in the list too, with the status ``damaged``.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from quintain.errors import QuintainError
from quintain.store.creation import CONFIG
from quintain.store.run import Run

_log = logging.getLogger("quintain.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A line of a list of runs: ``RunInfo(name="quickstart", recipe="rl/grpo", status="done", …)``."""

    name: str
    folder: Path
    recipe: str
    status: str
    created: float
    """seconds since 1970"""
    last_step: int | None
    """newest committed step, None before the first"""


def runs_in(root: Path) -> list[RunInfo]:
    """Return the runs in `root`, newest first; one that cannot be read has the status ``damaged``."""
    if not root.is_dir():
        return []
    found = [_info(folder.parent) for folder in root.glob(f"[!.]*/{CONFIG}")]
    return sorted(found, key=lambda info: (-info.created, info.name))


def _info(folder: Path) -> RunInfo:
    try:
        with Run.open(folder, writable=False) as run:
            return RunInfo(
                name=run.name,
                folder=folder,
                recipe=run.recipe,
                status=run.status,
                created=run.created,
                last_step=run.last_step,
            )
    except QuintainError as error:
        _log.warning("damaged run: %s", error)
        return RunInfo(
            name=folder.name, folder=folder, recipe="", status="damaged", created=0.0, last_step=None
        )
