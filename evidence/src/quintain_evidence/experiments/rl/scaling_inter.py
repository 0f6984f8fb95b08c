"""ScalingInter-RL: first short episodes, then longer ones; the same stages in reverse order teach less.

A ladder has twelve rungs; in each one of four actions leads a rung up, and every other falls a rung back. Tasks begin
at every rung and share what is learned on the way, and few episodes from the lowest one succeed at first. The method's
own schedule gives episodes of at most 4, then 10, then 24 turns. The control has the same stages, as many updates of
each, from long to short. The number is the exact success at full length after training. In the null world tasks begin
at the last two rungs alone, which short episodes solve as well, and the order of the stages does not matter. Beside
them: long episodes and short ones throughout, for as many environment steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from quintain.methods.rl import scaling_inter
from quintain.types import Group, Task, derive_seed, flatten_scored
from quintain_evidence.labs.exact import END, World, exact_values
from quintain_evidence.labs.tabular import TablePolicy, TabularRun, train_table

RUNGS, ACTIONS = 12, 4
TURNS = (4, 10, 24)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the exact success at full length after training."""
    stage = int(options.get("stage", 8))
    config = scaling_inter.Config(turns=TURNS, stage_steps=stage)
    total = stage * len(TURNS)
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("scaling_inter", seed, number)
        far = climber(range(RUNGS), own, skill=float(options.get("skill", 0.3)))
        near = climber(range(RUNGS - 2, RUNGS), own, skill=float(options.get("skill", 0.3)))

        def arm(
            start: TablePolicy,
            limit: Callable[[int], int],
            steps: float = float("inf"),
            batches: int = total,
            own: int = own,
        ) -> Arm:
            return trained(start, config, limit, options, own, steps, batches)

        grown, shrunk = arm(far, growing(config)), arm(far, shrinking(config, total))
        long = arm(far, lambda _: TURNS[-1], grown.steps, 4 * total)
        short = arm(far, lambda _: TURNS[0], grown.steps, 4 * total)
        found.append(
            {
                "method": grown.run.objective,
                "control": shrunk.run.objective,
                "null_method": arm(near, growing(config)).run.objective,
                "null_control": arm(near, shrinking(config, total)).run.objective,
                "extra.long": long.run.objective,
                "extra.short": short.run.objective,
                "extra.over_long": grown.run.objective - long.run.objective,
                "extra.over_short": far_success(grown.run.policy) - far_success(short.run.policy),
                "extra.steps": grown.steps / shrunk.steps,
                "extra.start": grown.run.start,
                "extra.start_far": far_success(far),
            }
        )
    return found


class Arm:
    """A run and the environment steps that it took."""

    def __init__(self) -> None:
        self.steps = 0
        self.run: TabularRun

    def collect(self, policy: TablePolicy, turns: int, size: int, seed: int, most: float) -> list[Group]:
        """Return `size` episodes of at most `turns` turns of each task; none once `most` steps were taken."""
        if self.steps >= most:
            return []
        limited = TablePolicy(replace(policy.world, horizon=turns), policy.theta)
        groups = limited.sample(size=size, seed=seed)
        self.steps += sum(len(t.turns) for t in flatten_scored(groups))
        return groups


def trained(
    start: TablePolicy,
    config: scaling_inter.Config,
    limit: Callable[[int], int],
    options: Mapping[str, Any],
    seed: int,
    most: float,
    batches: int,
) -> Arm:
    """Train a copy of `start` on episodes of at most `limit`(step) turns, until `most` environment steps were taken."""
    arm, size = Arm(), int(options.get("size", 8))

    def collect(policy: TablePolicy, step: int) -> list[Group]:
        return arm.collect(policy, limit(step), size, derive_seed(seed, step), most)

    arm.run = train_table(
        start,
        scaling_inter.method(config),
        num_batches=batches,
        size=size,
        seed=seed,
        rate=float(options.get("rate", 4.0)),
        collect=collect,
    )
    return arm


def growing(config: scaling_inter.Config) -> Callable[[int], int]:
    """Return the method's own limit of each step."""
    return lambda step: scaling_inter.horizon(config, step)


def shrinking(config: scaling_inter.Config, total: int) -> Callable[[int], int]:
    """Return the limits of `total` steps in reverse order."""
    return lambda step: scaling_inter.horizon(config, total + 1 - step)


def climber(starts: Sequence[int], seed: int, *, skill: float) -> TablePolicy:
    """Return a ladder whose tasks begin at the rungs `starts`, and a policy that knows the way up by `skill`."""
    rng = np.random.default_rng(seed)
    way = rng.integers(0, ACTIONS, RUNGS)
    following = np.repeat(np.maximum(np.arange(RUNGS) - 1, 0)[:, None], ACTIONS, 1)
    reward = np.zeros((RUNGS, ACTIONS))
    rungs = np.arange(RUNGS)
    following[rungs, way] = np.where(rungs + 1 < RUNGS, rungs + 1, END)
    reward[RUNGS - 1, way[-1]] = 1.0
    world = World(
        tasks=tuple(Task(id=f"ladder/train/{k}", environment="ladder", seed=k) for k in starts),
        actions=tuple(f"hold {k}" for k in range(ACTIONS)),
        horizon=TURNS[-1],
        start=np.array(starts, np.int64),
        next=following,
        reward=reward,
        is_legal=np.ones((RUNGS, ACTIONS), np.bool_),
        is_success=reward > 0,
        task_of=np.zeros(RUNGS, np.int64),
        keys=tuple(f"rung {k}" for k in range(RUNGS)),
        expert=way,
        distance=(RUNGS - rungs).astype(np.float64),
    )
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    theta = 0.3 * torch.randn((RUNGS, ACTIONS), generator=generator, dtype=torch.float64)
    theta[torch.arange(RUNGS), torch.as_tensor(way)] += skill
    return TablePolicy(world, theta)


def far_success(policy: TablePolicy) -> float:
    """Return the mean success of the tasks that begin in the lower half."""
    by_task = exact_values(policy.world, policy.probabilities()).by_task
    return float(by_task[: len(by_task) // 2].mean())
