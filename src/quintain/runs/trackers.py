"""The metrics of a run, shown elsewhere as well: Weights & Biases, Trackio, TensorBoard, MLflow.

The journal and ``metrics.jsonl`` are the truth; a tracker gets a copy of every committed row, and one that fails is
given up with a warning, never the run. Accounts, addresses and offline modes are the tracker's own settings, such as
``WANDB_MODE=offline``.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from quintain.errors import MissingExtra, UsageError, suggestion
from quintain.store.manifest import remove_links

LOG = logging.getLogger(__name__)
PROJECT = "quintain"
NAMES = ("wandb", "trackio", "tensorboard", "mlflow")
_OTHER_SIGNS = re.compile(r"[^\w\-. :/]", re.ASCII)
"""What MLflow allows in no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """What a tracker is told of a run: ``Tracked(folder=Path("runs/a"), config={"steps": 10}, next_step=0)``."""

    folder: Path
    config: Mapping[str, Any]
    next_step: int
    """0 for a new run; a resumed one goes on here"""


class Tracker(Protocol):
    """Takes in rows of metrics."""

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """Show the metrics `row` of `step`."""
        ...

    def close(self) -> None:
        """Show what is left and end."""
        ...


class Wandb:
    """Weights & Biases; the run's folder holds its files, and a resumed run goes on as the same one.

    Its link to a log in the user's cache is taken away: a run with a link that leads out of it cannot be opened.
    """

    def __init__(self, run: Tracked) -> None:
        self._folder = run.folder
        try:
            self._run: Any = import_module("wandb").init(
                project=PROJECT,
                name=run.folder.name,
                dir=str(run.folder),
                config=dict(run.config),
                resume="allow",
                id=identity(run),
            )
        finally:
            self._remove_links()

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """See `Tracker.log`."""
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        """See `Tracker.close`."""
        self._run.finish()
        self._remove_links()

    def _remove_links(self) -> None:
        remove_links(self._folder, self._folder / "wandb")


class Trackio:
    """Trackio, which keeps runs in files of its own (``TRACKIO_DIR``)."""

    def __init__(self, run: Tracked) -> None:
        self._module: Any = import_module("trackio")
        resume = "allow" if run.next_step else "never"
        self._module.init(project=PROJECT, name=run.folder.name, config=dict(run.config), resume=resume)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """See `Tracker.log`."""
        self._module.log(dict(row), step=step)

    def close(self) -> None:
        """See `Tracker.close`."""
        self._module.finish()


class TensorBoard:
    """TensorBoard's files in the folder ``tensorboard`` of the run."""

    def __init__(self, run: Tracked) -> None:
        writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = writer(str(run.folder / "tensorboard"), purge_step=run.next_step or None)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """See `Tracker.log`."""
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """See `Tracker.close`."""
        self._writer.close()


class MLflow:
    """MLflow, at its own address (``MLFLOW_TRACKING_URI``, else ``mlflow.db`` where the command runs).

    Signs that it allows in no name, as those of ``task/keydoor?rooms=3/success``, are written as ``_``.
    """

    def __init__(self, run: Tracked) -> None:
        module: Any = import_module("mlflow")
        self._client: Any = module.MlflowClient()
        self._metric: Any = module.entities.Metric
        experiment = self._client.get_experiment_by_name(PROJECT)
        place = self._client.create_experiment(PROJECT) if experiment is None else experiment.experiment_id
        known = self._client.search_runs([place], f"tags.folder = '{identity(run)}'", max_results=1)
        if known and run.next_step:
            self._id: str = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        made = self._client.create_run(place, run_name=run.folder.name, tags={"folder": identity(run)})
        self._id = made.info.run_id
        for name, value in run.config.items():
            self._client.log_param(self._id, _OTHER_SIGNS.sub("_", name), str(value)[:500])

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """See `Tracker.log`."""
        now = int(time.time() * 1000)
        numbers = [self._metric(_OTHER_SIGNS.sub("_", name), value, now, step) for name, value in row.items()]
        self._client.log_batch(self._id, metrics=numbers)

    def close(self) -> None:
        """See `Tracker.close`."""
        self._client.set_terminated(self._id)


KINDS: dict[str, type[Wandb] | type[Trackio] | type[TensorBoard] | type[MLflow]] = {
    "wandb": Wandb,
    "trackio": Trackio,
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
}


def identity(run: Tracked) -> str:
    """Return a name of the run that a tracker finds it by again."""
    number = run.config.get("seed", 0)
    return f"{run.folder.resolve().parent.name}-{run.folder.name}-{number}"


def tracker_names(text: str) -> tuple[str, ...]:
    """Return the trackers that `text` names: ``"wandb,tensorboard"``.

    Raises:
        UsageError: there is no such tracker.
        MissingExtra: its package is not installed.
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in KINDS:
            raise UsageError(f"track: got {name!r}; {suggestion(name, NAMES)}")
        if find_spec(name) is None:
            raise MissingExtra.for_package(name, name, f"tracking by {name}")
    return names


class Trackers:
    """The trackers of a run, of which one that fails is given up."""

    def __init__(self, names: tuple[str, ...], run: Tracked) -> None:
        self._open: dict[str, Tracker] = {}
        for name in names:
            try:
                self._open[name] = KINDS[name](run)
            except Exception as error:  # whatever the package leads to: a run does not end for it
                self._give_up(name, error)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """Give every tracker the finite numbers of `row`."""
        numbers = {name: float(value) for name, value in row.items() if math.isfinite(value)}
        for name, tracker in list(self._open.items()):
            try:
                tracker.log(step, numbers)
            except Exception as error:  # as above
                self._give_up(name, error)

    def close(self) -> None:
        """End every tracker."""
        for name, tracker in list(self._open.items()):
            try:
                tracker.close()
            except Exception as error:  # as above
                self._give_up(name, error)

    def _give_up(self, name: str, error: Exception) -> None:
        said = (str(error).strip().splitlines() or ["no message"])[0][:200]
        LOG.warning(
            "track: got %s from %s (%s); the run goes on without it, metrics.jsonl has everything",
            type(error).__name__,
            name,
            said,
        )
        self._open.pop(name, None)


@contextmanager
def tracking(text: str, run: Tracked) -> Generator[Trackers]:
    """Yield the trackers that `text` names, and end them."""
    trackers = Trackers(tracker_names(text), run)
    try:
        yield trackers
    finally:
        trackers.close()
