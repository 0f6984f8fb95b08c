"""OpenManus-RL: an update that samples until its groups differ learns more than one on as many groups at random.

On S3 four of five tasks are solved nearly always or hardly ever. Tasks are drawn, up to three times, until four groups
differ, by the collection that ships; those that differ are trained on with GiGPO's credit. The control trains on as
many groups drawn at random from the same episodes, equal ones among them, so cost and number are the same. In the null
world every task is solved half the time and groups are large: all groups differ, one draw is enough, and the arms are
the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector, differs, same_groups
from quintain.methods.rl import openmanus
from quintain.types import Group, Task, derive_seed, flatten_scored
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, cosine_with_exact


@dataclass(frozen=True, slots=True)
class TableCollector:
    """Lets a method collect from a table: ``TableCollector(start, seed=3).sample(1, tasks, size=8)``."""

    start: TablePolicy
    number: int

    def tasks(self, step: int, count: int) -> list[Task]:
        """Return `count` tasks of the world, in an order of the step, each once before one comes again."""
        order = list(range(len(self.start.world.tasks)))
        drawn: list[int] = []
        rng = random.Random(derive_seed("tasks", self.number, step))
        while len(drawn) < count:
            drawn += rng.sample(order, len(order))
        return [self.start.world.tasks[place] for place in drawn[:count]]

    def sample(self, step: int, tasks: Sequence[Task], *, size: int) -> list[Group]:
        """Return `size` episodes of each of `tasks`."""
        places = [self.start.world.tasks.index(task) for task in tasks]
        own = derive_seed("sample", self.number, step, *[task.id for task in tasks])
        return self.start.sample(size=size, seed=own, tasks=places)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` updates from one table."""
    size, large, num = int(options.get("size", 8)), int(options.get("null_size", 32)), 20
    low, high = float(options.get("low", 0.02)), float(options.get("high", 0.98))
    world = s3(seed, num_tasks=num)
    mixed = fitted_table(world, seed, until=[0.5, low, low, high, high] * (num // 5))
    even = fitted_table(world, seed, until=[0.5] * num)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("openmanus", seed, batch)
        right, wrong, more = update(mixed, size, own)
        null_right, null_wrong, null_more = update(even, large, own)
        found.append(
            {
                "method": right,
                "control": wrong,
                "null_method": null_right,
                "null_control": null_wrong,
                **{f"extra.{key}": value for key, value in more.items()},
                "extra.null_drawn": null_more["drawn"],
                "extra.start": mixed.objective(),
            }
        )
    return found


def update(start: TablePolicy, size: int, seed: int) -> tuple[float, float, dict[str, float]]:
    """Return the cosine with ∇J of the groups that differ and of as many at random, and what was sampled for them."""
    config = openmanus.Config(tasks=4, group_size=size, kl_coef=0.0)
    method = openmanus.method(config)
    whole = replace(method, keep=same_groups)
    _, exact = exact_gradient(start.world, start.theta)
    groups = method.collect(cast(Collector, TableCollector(start, seed)), 1)
    kept = method.keep(method.reward(groups))
    chosen = random.Random(seed).sample(groups, len(kept))

    def angle(arm: OnPolicy, own: Sequence[Group]) -> float:
        return cosine_with_exact(start, arm, own, exact=exact) if own else 0.0

    return (
        angle(method, groups),
        angle(whole, chosen),
        {
            "mixed": float(np.mean([differs(group) for group in kept])) if kept else 1.0,
            "mixed_at_random": float(np.mean([differs(group) for group in groups])),
            "all": angle(whole, groups),
            "drawn": len(groups) / config.tasks,
            "kept": len(kept) / config.tasks,
            "steps": sum(len(t.turns) for t in flatten_scored(groups)) / config.tasks,
        },
    )
