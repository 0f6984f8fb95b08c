"""A run in the hand: what `quintain.train` returns, a path and what lies there.

It is the folder of the run as before, a `pathlib.Path`, and reads what is in it when it is asked. Nothing is kept open.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.learning.saved import load_policy
from quintain.models.load import LoadedModel
from quintain.store.run import Run
from quintain.types import Trajectory

if TYPE_CHECKING:
    Folder = Path
else:
    Folder = type(Path())
    """The kind of path of this system: before Python 3.12 `Path` itself has no subclasses of others."""


class TrainedRun(Folder):
    """A run by its folder: ``TrainedRun("runs/grpo-1").metrics``.

    It is a path wherever one is wanted: ``run / "curve.png"``, ``open(run / "report.html")``, ``str(run)``.
    """

    __slots__ = ()

    @property
    def folder(self) -> Path:
        """The folder, as a plain path."""
        return Path(self)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The curve: ``{"step": 10, "phase": "train", "eval/success": 0.5, …}`` of each step that was committed.

        ``pandas.DataFrame(run.metrics)`` is a table of it.
        """
        with Run.open(self.folder, writable=False) as run:
            return run.metrics()

    @property
    def best(self) -> int | None:
        """The step that did best on what is held out, the earliest of several; None where nothing was held out."""
        with Run.open(self.folder, writable=False) as run:
            return run.best_step

    def episodes(self, step: int | None = None, *, phase: str | None = None) -> list[Trajectory]:
        """Return the episodes that the run keeps; of one step, of one phase (``train`` or ``eval``)."""
        with Run.open(self.folder, writable=False) as run:
            return list(run.trajectories(step=step, phase=phase))

    def model(self, step: int | str | None = None) -> LoadedModel:
        """Load the newest policy, ``.model`` and ``.tokenizer``; or that of a step that is kept: 75, or ``best``.

        Raises:
            ModelError: the run has none, or the step is not kept.
        """
        return load_policy(str(self) if step is None else f"{self}@{step}")

    def _repr_png_(self) -> bytes | None:
        """Return the curve, which a notebook shows where a run stands on the last line of a cell."""
        curve = self.folder / "curve.png"
        return curve.read_bytes() if curve.is_file() else None

    def with_segments(self, *segments: str | PathLike[str]) -> Path:
        """Return a plain path: what lies in the run is no run."""
        return Path(*segments)

    def __truediv__(self, key: str | PathLike[str]) -> Path:
        """Return the plain path of what lies in the run."""
        return self.folder / key
