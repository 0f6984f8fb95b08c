"""Episodes to a place of their own: a run folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quintain.eval.evaluate import evaluate
from quintain.store import Run
from quintain.types import Trajectory

PHASE = "collect"


def write_run(trajectories: Sequence[Trajectory], folder: Path, settings: Mapping[str, Any]) -> None:
    """Write `trajectories` as step 0 of the new run `folder`, whose configuration is `settings`."""
    with Run.create(folder, recipe="collect", config=settings) as run:
        run.append(trajectories, step=0, phase=PHASE)
        run.commit(0, evaluate(trajectories).metrics(f"{PHASE}/"), phase=PHASE)
        run.finish()
