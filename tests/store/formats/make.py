"""Write the fixture of the present format: ``python -m tests.store.formats.make``. One is kept for each format.

A change of what a run is on the disk gets a new number in `quintain.store.schema`, and this writes its folder; those
that are there are never written again.
"""

import os
from pathlib import Path

from tests.store.conftest import trajectory
from tests.training.test_learner import nll, qwen, streams

from quintain.data.pack import pack
from quintain.models.fingerprint import fingerprint
from quintain.store.run import Run
from quintain.store.schema import VERSION
from quintain.training.learner import Learner, Optimization
from quintain.types import Failure

STEPS = 3


def main() -> None:
    """Train a little and leave the run where it was interrupted: after its third step, two of them saved."""
    learner = Learner(qwen(), Optimization(learning_rate=1e-2))
    broken = Failure(owner="tool", kind="timeout", message="it hung")
    folder = Path(__file__).parent / f"format-{VERSION}"
    with Run.create(folder, recipe="grpo", config={"steps": 9}) as run:
        for step in range(STEPS):
            run.append([trajectory(0), trajectory(1, outcome=broken)], step=step)
            report = learner.step([pack(streams(step))], nll)
            weights = fingerprint(learner.model)
            run.commit(step, {"train/loss": report.loss}, weights=weights, policy_version=learner.version)
            if step < STEPS - 1:
                run.checkpoint(step, learner.save)
        run.finish("interrupted")
    os.remove(folder / "run.lock")


if __name__ == "__main__":
    main()
