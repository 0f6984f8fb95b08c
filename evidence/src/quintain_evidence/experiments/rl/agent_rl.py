"""AgentRL: does an environment that pays little keep its gradient beside others that pay much?

Four tasks of S3 as a table, each an environment of its own, which pay 1, 3, 10 and 30 times what S3 pays: which task
pays which is rotated. All begin at the same success. The number is the exact success, after 30 batches of eight
episodes of each task twice, of the task that is solved least. In the control the names of environments are dealt out
anew to the episodes of a batch, in the same numbers: group means, the number of scales, loss and optimizer are the
same. The rival has one scale for all (Lite PPO's). In the null world all tasks pay alike.

Beside it: the lead over the rival at half and at double the rate, and GRPO, whose groups each have a deviation of their
own, so that nothing is broken there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from quintain.credit.whiten import whiten
from quintain.methods.loops.on_policy import Estimates, OnPolicy, normalise_credit
from quintain.methods.rl import agent_rl, grpo
from quintain.types import Credit, Group, Trajectory, Turn, derive_seed
from quintain_evidence.labs.exact import exact_values
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, train_table

SCALES = (1.0, 3.0, 10.0, 30.0)
SIZE = 8


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications on one table, each with other episodes and another rotation of the scales."""
    start = fitted_table(
        s3(seed, num_tasks=len(SCALES), distances=(3,)), seed, until=[float(options["until"])] * len(SCALES)
    )
    return [
        replication(start, options, number, derive_seed("agent_rl", seed, number))
        for number in range(int(options["seeds"]))
    ]


def replication(start: TablePolicy, options: Mapping[str, Any], number: int, seed: int) -> dict[str, float]:
    """Return the success of the worst task under all arms."""
    config, num = agent_rl.Config(), int(options["batches"])
    plain = agent_rl.method(config)
    own = normalise_credit(plain, config.normalise_by)
    one, dealt = replace(plain, credit=whiten_all(plain)), replace(plain, credit=whiten_dealt(plain, seed))
    paid, alike = (
        scale_rewards(start, np.roll(SCALES, number).tolist()),
        scale_rewards(start, [1.0] * len(SCALES)),
    )

    def worst(method: OnPolicy, table: TablePolicy, rate: float) -> float:
        run = train_table(
            table, method, num_batches=num, size=SIZE, seed=seed, rate=rate,
            tasks=[*range(len(SCALES))] * 2,
        )  # fmt: skip
        values = exact_values(table.world, run.policy.probabilities(), outcome="success")
        return float(values.by_task.min())

    rate = float(options["rate"])
    return {
        "method": worst(own, paid, rate),
        "control": worst(dealt, paid, rate),
        "null_method": worst(own, alike, rate),
        "null_control": worst(dealt, alike, rate),
        "extra.one": worst(one, paid, rate),
        "extra.half": worst(own, paid, rate / 2) - worst(one, paid, rate / 2),
        "extra.double": worst(own, paid, rate * 2) - worst(one, paid, rate * 2),
        "extra.grpo": worst(grpo.method(grpo.Config()), paid, rate),
        "extra.start": start.objective("success"),
    }


def scale_rewards(start: TablePolicy, scales: Sequence[float]) -> TablePolicy:
    """Return `start` in the same world, whose task i is environment i and pays ``scales[i]`` times as much."""
    world = start.world
    tasks = tuple(replace(task, environment=f"e{i}") for i, task in enumerate(world.tasks))
    reward = world.reward * np.array(scales)[world.task_of][:, None]
    return TablePolicy(replace(world, tasks=tasks, reward=reward), start.theta)


def whiten_all(method: OnPolicy) -> Any:
    """Return the credit of `method`, whitened over the batch: one scale for all environments."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        return whiten(method.credit(groups, estimates))

    return credit


def whiten_dealt(method: OnPolicy, seed: int) -> Any:
    """Return the credit of `method`, whitened by environments that are dealt out anew to the episodes of a batch."""
    rng = Random(seed)

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        found = method.credit(groups, estimates)
        names = [trajectory.task.environment for trajectory in found.trajectories]
        rng.shuffle(names)
        dealt = {id(t): name for t, name in zip(found.trajectories, names, strict=True)}

        def name_of(trajectory: Trajectory, _: Turn) -> str:
            return dealt[id(trajectory)]

        return whiten(found, by=name_of)

    return credit
