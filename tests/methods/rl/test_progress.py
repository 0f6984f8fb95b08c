"""What a turn contributed is found from outcomes alone, in worlds whose true progress is known (SPA-RL)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import pytest

from quintain.credit.decomposition import Contributions
from quintain.curriculum.streams import TaskStream
from quintain.engines.local import Local
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, Expert, Snapshot, advance, begin
from quintain.learning.train_config import TrainConfig
from quintain.rollout.collect import Rollout
from quintain.types import Group, Trajectory
from quintain.warm_start.start import harness, make_start

FAR = 80
"""What no expert needs."""


def played(spec: str, num: int) -> list[Trajectory]:
    """Return `num` episodes of an expert that errs in 60 % of its turns: whole ones, paid at the end alone."""
    make = find(spec)
    model, tokenizer = make_start("micro", make, seed=0)
    rollout = Rollout(harness(TrainConfig(), tokenizer, make), make, Local(model))
    try:
        tasks = TaskStream(tasks_of(make)).draw(0, num)
        groups = rollout.demonstrations(tasks, noisy(0.6), seed=1)
    finally:
        rollout.close()
    return [t for group in groups for t in group.trajectories]


def distance(world: Environment) -> int:
    """How many actions the expert needs from here."""
    snapshots = cast(Snapshot, world)
    state = snapshots.snapshot()
    try:
        for number in range(1, FAR):
            result = advance(world, cast(Expert, world).expert_action())
            if result.is_terminated:
                return number if result.is_success else FAR
        return FAR
    finally:
        snapshots.restore(state)


def progress(world: Environment, trajectory: Trajectory) -> list[int]:
    """By how much each turn brought the expert nearer."""
    begin(world, trajectory.task)
    left = [distance(world)]
    for turn in trajectory.turns:
        left.append(0 if advance(world, turn.action).is_terminated else distance(world))
    return [before - after for before, after in pairwise(left)]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """The correlation of ranks, those of equal numbers their mean."""

    def ranks(values: Sequence[float]) -> list[float]:
        _, inverse, counts = np.unique(np.round(values, 9), return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        return [float(ends[i] - counts[i] / 2) for i in inverse]

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


@pytest.mark.parametrize(("spec", "num"), [("keydoor", 300), ("house?kind=put&things=1", 520)])
@pytest.mark.slow
def test_contributions_follow_the_true_progress(spec: str, num: int) -> None:
    episodes = played(spec, num)
    seen, unseen = episodes[40:], episodes[:40]
    estimator = Contributions()
    for first in range(0, len(seen), 64):
        part = seen[first : first + 64]
        estimator.update([Group(task=t.task, trajectories=(t,)) for t in part])
    world = find(spec)()
    found = [value for t in unseen for value in estimator.predict(t)]
    true = [float(value) for t in unseen for value in progress(world, t)]
    assert spearman(found, true) > 0.5
