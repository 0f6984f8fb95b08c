"""Training a table by a method of rounds: its own collection, stages, data and loss, as in a run.

`TableCollector` stands in for where episodes come from: tasks of a pool that are drawn for a round, and their episodes
by the table as it is. What a round imitates is what `Material` makes of it in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from quintain.data.pipeline import PipelineResult, as_example
from quintain.learning.update import Update, minibatches
from quintain.methods.loops.rounds import (
    Built,
    Data,
    Material,
    Rounds,
    as_collected,
    samples_of,
    step_batches,
)
from quintain.methods.method import Collector
from quintain.types import Group, Sample, Task, Trajectory, derive_seed
from quintain_evidence.labs.tabular import TablePolicy, packed

Play = Callable[[TablePolicy, Sequence[Task], int, int], list[Group]]
"""(policy, tasks, size, seed) → `size` episodes of each"""
Optimizer = Callable[[list[Tensor], float], torch.optim.Optimizer]


def adam(parameters: list[Tensor], rate: float) -> torch.optim.Optimizer:
    """Return Adam: a row of a large table moves by its rate, however seldom it is seen."""
    return torch.optim.Adam(parameters, rate)


@dataclass(slots=True)
class TableCollector:
    """Episodes of a table: ``TableCollector(policy, pool=world.tasks, seed=3)``."""

    policy: TablePolicy
    pool: Sequence[Task]
    seed_of_run: int
    play: Play | None = None
    """None: of the tasks of the policy's world, by number"""
    demonstrated: Sequence[Trajectory] = ()
    play_wrapped: Play | None = None
    """what wrapping the harness comes to, where the method does"""
    teach: Callable[[Sequence[Task]], list[Trajectory]] = lambda _: []
    """episodes of the teacher on given tasks"""
    environment: str = "table"
    sampled: list[int] = field(default_factory=list[int])
    """episodes of each call"""

    def seed(self, *parts: int | str) -> int:
        """Return the seed of the run that `parts` name."""
        return derive_seed("table run", self.seed_of_run, *parts)

    def tasks(self, step: int, count: int) -> list[Task]:
        """Return the `count` training tasks of `step`, drawn from the pool, none twice where there are enough."""
        rng = np.random.default_rng(self.seed("tasks", step))
        chosen = rng.choice(len(self.pool), count, replace=count > len(self.pool))
        return [self.pool[number] for number in chosen.tolist()]

    def expert_tasks(self, step: int, count: int) -> list[Task]:
        """Return the `count` training tasks of `step`: the teacher knows all."""
        return self.tasks(step, count)

    def sample(
        self, step: int, tasks: Sequence[Task], *, size: int, agent: object = None, **_: Any
    ) -> list[Group]:
        """Return `size` episodes of each of `tasks`, by `play_wrapped` where the method wraps the harness."""
        self.sampled.append(size * len(tasks))
        own = self.seed("step", step, len(self.sampled))
        if agent is not None and self.play_wrapped is not None:
            return self.play_wrapped(self.policy, tasks, size, own)
        if self.play is not None:
            return self.play(self.policy, tasks, size, own)
        places = {id(task): number for number, task in enumerate(self.policy.world.tasks)}
        return self.policy.sample(size=size, seed=own, tasks=[places[id(task)] for task in tasks])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the names of the actions that `token_ids` take; those that say where it stands have no text."""
        world = self.policy.world
        return " ".join(world.actions[i - world.num_states] for i in token_ids if i >= world.num_states)

    def demonstrations(self) -> list[Trajectory]:
        """Return what is imitated."""
        return list(self.demonstrated)

    def expert_episodes(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """Return an episode of the teacher on each of `tasks`."""
        return self.teach(tasks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundsRun:
    """What came of training a table in rounds: ``run.policies[-1]`` is the last."""

    policies: list[TablePolicy]
    """after each round"""
    made: list[list[Built]]
    """what each training of each round made"""
    collector: TableCollector

    @property
    def chosen(self) -> list[list[PipelineResult]]:
        """What each training of each round chose to imitate."""
        return [[made for made in parts if isinstance(made, PipelineResult)] for parts in self.made]

    @property
    def policy(self) -> TablePolicy:
        """The policy at the end."""
        return self.policies[-1]


def train_rounds(
    start: TablePolicy,
    method: Rounds,
    *,
    num_rounds: int,
    seed: int,
    rate: float,
    pool: Sequence[Task] | None = None,
    play: Play | None = None,
    shown: Sequence[Trajectory] = (),
    explorer: TablePolicy | None = None,
    play_wrapped: Play | None = None,
    teach: Callable[[Sequence[Task]], list[Trajectory]] = lambda _: [],
    optimizer: Optimizer = adam,
) -> RoundsRun:
    """Train a copy of `start` by `method` and return what came of it.

    Args:
        start: the starting weights; they are not changed.
        method: whose collection, stages, base and update are used.
        num_rounds: rounds.
        seed: names tasks, episodes and minibatches.
        rate: learning rate, which the factor of each training multiplies.
        pool: training tasks; None: those of the world.
        play: stands in for sampling.
        shown: demonstrations.
        explorer: samples in the first round, where it is not `start` (the base is imitated before it).
        play_wrapped: stands in for sampling where the method wraps the harness.
        teach: episodes of the teacher on given tasks.
        optimizer: made anew for each round that starts over, else once.
    """
    policy = start.copy() if explorer is None else explorer.copy()
    collector = TableCollector(
        policy,
        start.world.tasks if pool is None else pool,
        seed,
        play,
        shown,
        play_wrapped=play_wrapped,
        teach=teach,
    )
    as_collector = cast(Collector, collector)
    material = Material(method, method.base(as_collector))
    applied = optimizer(policy.parameters, rate)
    policies: list[TablePolicy] = []
    made: list[list[Built]] = []
    for step in range(1, num_rounds + 1):
        found = as_collected(method.collect(as_collector, step))
        method.state.update(found.groups)
        parts = material.take(found.groups, found.data)
        if method.starts_over and any(data for _, data in parts):
            policy = collector.policy = start.copy()
            applied = optimizer(policy.parameters, rate)
        for number, (improve, (_, data)) in enumerate(zip(method.improves, parts, strict=True)):
            for group in applied.param_groups:
                group["lr"] = rate * improve.rate
            own = derive_seed("round", seed, step, number)
            if method.steps is None or not data:
                imitate(policy, applied, data, method.update, own, reference=start)
                continue
            for batch in step_batches(samples_of(data), method.steps, step, own):
                descend(policy, applied, batch, method.update, reference=start)
        policies.append(policy.copy())
        made.append([built for built, _ in parts])
    return RoundsRun(policies=policies, made=made, collector=collector)


def imitate(
    policy: TablePolicy,
    applied: torch.optim.Optimizer,
    data: Data,
    update: Update,
    seed: int,
    *,
    reference: TablePolicy | None = None,
) -> None:
    """Train `policy` on `data` in the epochs and minibatches of `update`; on nothing it stays as it is."""
    if not data:
        return
    samples = samples_of(data)
    for epoch in range(update.num_epochs or 1):
        for places in minibatches(samples, update.num_minibatches or 1, derive_seed(seed, epoch)):
            descend(policy, applied, [samples[place] for place in places], update, reference=reference)


def descend(
    policy: TablePolicy,
    applied: torch.optim.Optimizer,
    samples: Sequence[Sample],
    update: Update,
    *,
    reference: TablePolicy | None = None,
) -> None:
    """Take one optimizer step on `samples`, with log-probs of `reference` where the loss reads them."""
    batch = packed(samples, update, reference)
    applied.zero_grad()
    update.loss(policy(batch), batch).loss.backward()
    applied.step()


def cloned(
    start: TablePolicy, shown: Sequence[Trajectory], update: Update, *, rate: float, seed: int = 0
) -> TablePolicy:
    """Return what becomes of a copy of `start` that imitates `shown`: a table with a warm start."""
    policy = start.copy()
    imitate(policy, adam(policy.parameters, rate), [as_example(t) for t in shown], update, seed)
    return policy
