"""The offline loop: a data set of episodes or preference pairs that is there before the first step → updates."""

from collections.abc import Sequence

import numpy as np

from quintain.data.samples import imitation_samples, pair_samples
from quintain.methods.loops.requirements import refuse_environment
from quintain.methods.method import Offline
from quintain.store.run import Run
from quintain.training.context import opened
from quintain.training.job import Job
from quintain.training.updating import epoch_batch, learn_from
from quintain.types import Pair, Sample, Trajectory


def train_offline(method: Offline, job: Job, run: Run) -> None:
    """Train by `method` until ``job.steps``, continuing where `run` was left."""
    needs = method.needs
    refuse_environment(job, needs)
    with opened(
        job, run, has_warm_start=method.has_warm_start, has_critic=needs.critic, policies=needs.policies
    ) as context:
        data = method.data(context.collector)
        samples = make_samples(data)
        for step in context.steps():
            chosen = choose(method, len(samples), step, context.seed("pairs", step), context.seed("order"))
            report = learn_from(
                context.policies, [s for i in chosen for s in samples[i]], method.update,
                step=step, rate_scale=method.lr_schedule(step),
            )  # fmt: skip
            row = context.measure((), report, method.metrics(data))
            row |= context.serve_weights()
            row |= context.clock()
            row |= context.evaluate(step) if context.is_due(step) else {}
            row |= context.judge(step, row)
            context.record(step, row)
            if context.is_due(step):
                context.save(step)
            context.show(step, row)


def make_samples(data: Sequence[Trajectory] | Sequence[Pair]) -> list[list[Sample]]:
    """Return the token streams of each trajectory, or of both sides of each pair, numbered over all of `data`."""
    pairs = [each for each in data if isinstance(each, Pair)]
    samples = (
        pair_samples(pairs) if pairs else imitation_samples([t for t in data if isinstance(t, Trajectory)])
    )
    found: list[list[Sample]] = [[] for _ in data]
    for sample in samples:
        found[sample.pair if pairs else sample.trajectory].append(sample)
    return [streams for streams in found if streams]


def choose(method: Offline, total: int, step: int, drawn_by: int, ordered_by: int) -> list[int]:
    """Return the places of the data that `step` learns from."""
    if method.draws_anew:
        return np.random.default_rng(drawn_by).permutation(total)[: method.batch_size].tolist()
    return epoch_batch(total, method.batch_size, step - 1, (ordered_by,))
