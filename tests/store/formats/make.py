"""Write the fixture of the present format: ``python -m tests.store.formats.make``. One is kept for each format.

A change of what a run is on the disk gets a new number in `quintain.store.schema`, and this writes its folder; those
that are there are never written again.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.learning.test_learner import nll, qwen, streams
from tests.store.conftest import trajectory

from quintain.data.pack import pack
from quintain.learning.learner import Learner, Optimization
from quintain.models.fingerprint import fingerprint
from quintain.store.run import Run
from quintain.store.schema import VERSION
from quintain.types import Branch, Failure, Signals, Trajectory, Use

STEPS = 3
BROKEN = Failure(owner="tool", kind="timeout", message="it hung")


def rich(parent: str) -> Trajectory:
    """Return a branch of the episode `parent` with what format 3 brought: policies, versions, rewards by seat."""
    whole = trajectory(2)
    first, last = whole.turns
    done = replace(last.completion, policy="planner", version_spans=((0, 3), (1, 4)), policy_version=4)
    plan = replace(
        last, seat="agent/plan", prompt_ids=(5, 9, 4, 17, 2, 8), starts_segment=True, completion=done
    )
    act = replace(last, prompt_ids=(6,), rewards={"agent": 1.0}, state_key="a", reward_terms={"speed": 0.5})
    return replace(whole, turns=(first, plan, act), parent=Branch(episode=parent, turn=1))


def uses(run: Run, step: int, ids: Sequence[str], *, version: int = VERSION) -> list[Use]:
    """Return what `step` used: its own episodes, and in steps after the first also the first of all.

    From format 4 on, its first episode was chosen over its second.
    """
    signals = Signals(advantages=np.full(4, 0.5, np.float32), logprobs=np.array([-0.1, -0.2, -0.3, -0.4]))
    stale = [use.episode for _, use in run.uses(0)][:1]
    rejected = ids[1] if version > 3 else ""
    first = Use(episode=ids[0], signals=signals, rejected=rejected)
    return [first, Use(episode=ids[1]), *map(named, stale)]


def named(episode: str) -> Use:
    """Return the use of `episode` without signals."""
    return Use(episode=episode)


def main() -> None:
    """Train a little and leave the run where it was interrupted: after its third step, two of them saved."""
    learner = Learner(qwen(), Optimization(learning_rate=1e-2))
    folder = Path(__file__).parent / f"format-{VERSION}"
    with Run.create(folder, recipe="grpo", config={"steps": 9}) as run:
        for step in range(STEPS):
            ids = run.append([trajectory(0), trajectory(1, outcome=BROKEN)], step=step)
            run.append([rich(ids[0])], step=step, phase="branches")
            report = learner.step([pack(streams(step))], nll)
            weights = fingerprint(learner.model)
            metrics = {"train/loss": report.loss}
            used = uses(run, step, ids)
            run.commit(step, metrics, weights=weights, policy_version=learner.version, uses=used)
            if step < STEPS - 1:
                run.checkpoint(step, learner.save)
        run.finish("interrupted")
    os.remove(folder / "run.lock")


if __name__ == "__main__":
    main()
