"""The policy that a benchmark starts from: it imitates until it solves enough training tasks, and no further.

A start that solves nothing or everything shows no difference between methods; how many demonstrations lie between
depends on world and seed, so success is measured on the way. Only training tasks are looked at.
"""

from __future__ import annotations

from quintain.curriculum.streams import TaskStream
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.eval.evaluate import evaluate
from quintain.models.save import save
from quintain.rollout.collect import Rollout
from quintain.store.run import Run
from quintain.training.context import START
from quintain.training.job import Job
from quintain.training.learner import Learner, Optimization
from quintain.training.progress import Display
from quintain.training.start import Imitation, harness, load_demonstrations, make_start
from quintain.types import derive_seed

NUM_PROBED = 64
"""Training tasks that success is measured on."""
FIRST_PROBE, LEAST_BETWEEN, GROWTH = 8, 4, 1.25
"""Updates before the first probe and between two of them; and how much later each is than the last."""


def imitated(job: Job, run: Run, display: Display, *, enough: float) -> float:
    """Save the policy that `run` starts from and return the success it was stopped at.

    It imitates the demonstrations of `job` in up to `imitation_epochs` passes, until its success on training tasks
    is `enough` or more.
    """
    make_environment = find(job.environment)
    model, tokenizer = make_start(job.model, make_environment, seed=job.seed)
    kept = load_demonstrations(job, make_environment, tokenizer, run, display)
    learner = Learner(model, Optimization(learning_rate=job.imitation_rate, temperature=job.temperature))
    updates = Imitation(learner, kept, job)
    engine = build_engine(EngineSettings(), model, tokenizer)
    rollout = Rollout(harness(job, tokenizer, make_environment), make_environment, engine)
    tasks = TaskStream(tasks_of(make_environment), first=job.first_task).draw(0, NUM_PROBED)
    probes, found = probed_after(updates.total), 0.0
    display.phase("warm start", updates.total)
    try:
        for update in updates.run():
            display.advance()
            if update + 1 in probes:
                engine.load_weights(learner.version, None)
                groups = rollout.groups(tasks, size=1, seed=derive_seed(job.seed, "probe"))
                found = evaluate([t for group in groups for t in group.trajectories]).success
                if found >= enough:
                    break
    finally:
        rollout.close()
    save(model, tokenizer, run.folder / START)
    return found


def probed_after(total: int) -> set[int]:
    """Return after which of `total` updates success is measured: 8, 12, 16, 20, 25, 31, …, and the last."""
    places, place = {total}, FIRST_PROBE
    while place < total:
        places.add(place)
        place = max(place + LEAST_BETWEEN, int(place * GROWTH))
    return places
