"""The policy that a benchmark starts from: it imitates until it solves enough training tasks, and no further.

A start that solves nothing or everything shows no difference between methods; how many demonstrations lie between
depends on world and seed, so success is measured on the way. The one rule: only training tasks are looked at.
"""

from __future__ import annotations

import numpy as np

from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples
from quintain.engines.local import Local
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.eval.evaluate import evaluate
from quintain.losses.imitation import imitation
from quintain.models.save import save
from quintain.rollout.collect import Rollout
from quintain.store.run import Run
from quintain.training.job import Job
from quintain.training.learner import Learner, Optimization
from quintain.training.policy import harness, new_policy
from quintain.training.progress import Display
from quintain.training.warm_up import DEMONSTRATIONS_PER_UPDATE, MICRO_TOKENS
from quintain.training.work import START, demonstrations
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
    model, tokenizer = new_policy(job.model, make_environment, seed=job.seed)
    kept = demonstrations(job, make_environment, tokenizer, run, display)
    samples = imitation_samples(kept, is_left_out=lambda turn: turn.action.error is not None)
    learner = Learner(model, Optimization(learning_rate=job.imitation_rate, temperature=job.temperature))
    agent = harness(tokenizer, make_environment, temperature=job.temperature, agent=job.agent)
    engine = Local(model)
    rollout = Rollout(agent, make_environment, engine)
    tasks = TaskStream(tasks_of(make_environment)).draw(0, NUM_PROBED)
    per_epoch = max(1, round(len(samples) / DEMONSTRATIONS_PER_UPDATE))
    probes, found = probed_after(job.imitation_epochs * per_epoch), 0.0
    display.phase("warm-up", job.imitation_epochs * per_epoch)
    try:
        for update in range(job.imitation_epochs * per_epoch):
            epoch, part = divmod(update, per_epoch)
            order = np.random.default_rng(derive_seed(job.seed, "warm-up", epoch)).permutation(len(samples))
            batches = micro_batches([samples[i] for i in order[part::per_epoch]], max_tokens=MICRO_TOKENS)
            learner.step(batches, imitation())
            display.advance()
            if update + 1 in probes:
                engine.sync(learner.version)
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
