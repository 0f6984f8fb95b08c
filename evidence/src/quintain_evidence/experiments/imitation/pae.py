"""PAE: does the shortest fifth of each task's accepted episodes teach shorter ways than as many random ones?

A table over the texts of an open sokoban has imitated forty demonstrations of an expert that errs. In each of five
rounds it tries 32 proposed levels eight times each, three in ten of which have no solution; the evaluator accepts what
is solved and one in twenty failures. The number is the chance of solving held-out levels within two moves more than a
shortest way, exactly. The control keeps as many accepted episodes of each task, drawn at random. Beside them: the
shortest fifth of all episodes pooled, which keeps near levels. In the null world every level is two moves away and
two moves end the episode: all lengths tie, nothing is cut, and both arms are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.data.pipeline import Pipeline, Stage
from quintain.methods.imitation.pae import Config, keep_accepted, method, shortest
from quintain.methods.loops.rounds import Rounds
from quintain.types import Example, Group, Score, Task, Trajectory, derive_seed
from quintain_evidence.experiments.selftraining.rest import weak_table
from quintain_evidence.labs.exact import World
from quintain_evidence.labs.levels import exact, levels, open_floor, starting_at
from quintain_evidence.labs.rounds import RoundsRun, train_rounds
from quintain_evidence.labs.tabular import TablePolicy


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the chance of solving held-out levels in hardly more moves than it takes."""
    dead, wrong = float(options["dead"]), float(options["wrong"])
    config = Config(tasks=int(options["tasks"]), group_size=int(options["size"]))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("pae", seed, number)
        world = starting_at(levels(own, int(options["levels"]), dead=dead))
        near = replace(starting_at(levels(own, int(options["levels"]), least=2, most=2)), horizon=2)
        held_out = levels(derive_seed(own, "held out"), int(options["held_out"]))
        start = weak_table(own, demonstrations=int(options["demonstrations"]))

        def learned(
            arm: Rounds, world: World = world, own: int = own, start: TablePolicy = start
        ) -> RoundsRun:
            made = replace(arm, update=replace(arm.update, num_epochs=int(options["epochs"])))
            return train_rounds(
                TablePolicy(world, start.theta),
                made,
                num_rounds=int(options["rounds"]),
                seed=own,
                rate=float(options["rate"]),
                play=partial(evaluated, wrong=wrong),
            )

        arm = method(config)
        random = replace(arm, build=Pipeline(keep_accepted(), as_many(config.shortest, own)))
        pooled = replace(arm, build=Pipeline(keep_accepted(), of_all(config.shortest)))
        run, shuffled = learned(arm), learned(random)
        found.append(
            {
                "method": quick(run.policy, held_out),
                "control": quick(shuffled.policy, held_out),
                "null_method": quick(learned(arm, near).policy, held_out),
                "null_control": quick(learned(random, near).policy, held_out),
                "extra.pooled": quick(learned(pooled).policy, held_out),
                "extra.start": quick(start, held_out),
                "extra.start_success": float(exact(start, held_out).success.mean()),
                "extra.success": float(exact(run.policy, held_out).success.mean()),
                "extra.control_success": float(exact(shuffled.policy, held_out).success.mean()),
                "extra.dead_kept": kept_dead(run),
            }
        )
    return found


def evaluated(
    policy: TablePolicy, tasks: Sequence[Task], size: int, seed: int, *, wrong: float
) -> list[Group]:
    """Return episodes of which the share `wrong` of the failures is paid 1, as an evaluator does that errs."""
    places = {id(task): number for number, task in enumerate(policy.world.tasks)}
    groups = policy.sample(size=size, seed=seed, tasks=[places[id(task)] for task in tasks])
    errs = iter(np.random.default_rng(derive_seed("evaluator", seed)).random(len(tasks) * size) < wrong)

    def seen(trajectory: Trajectory) -> Trajectory:
        is_wrong = bool(next(errs))
        if trajectory.is_success or not is_wrong:
            return trajectory
        return replace(trajectory, outcome=Score(value=1.0, is_success=False))

    return [replace(group, trajectories=tuple(map(seen, group.trajectories))) for group in groups]


def quick(policy: TablePolicy, rows: NDArray[np.int64]) -> float:
    """Return the chance of solving the levels at `rows` within two moves more than a shortest way, their mean."""
    away = open_floor().distance[rows].astype(np.int64)
    return float(exact(policy, rows).within(away + 2).mean())


def kept_dead(run: RoundsRun) -> float:
    """Return the share of what was imitated that comes from levels without a solution."""
    away = open_floor().distance
    first = [
        e.trajectory.turns[0].prompt_ids[0] for made in run.chosen for part in made for e in part.examples
    ]
    return float(np.mean(np.isinf(away[first]))) if first else 0.0


def as_many(share: float, seed: int) -> Stage:
    """Return the stage that keeps as many episodes of each task as `shortest` does, drawn at random."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        by_task: dict[str, list[Example]] = {}
        for example in examples:
            by_task.setdefault(example.trajectory.task.id, []).append(example)
        kept: set[int] = set()
        for own in by_task.values():
            count = len(shortest(share).apply(own))
            rng = np.random.default_rng(derive_seed("as many", seed, own[0].trajectory.seed))
            kept |= {id(own[place]) for place in rng.permutation(len(own))[:count].tolist()}
        return [example for example in examples if id(example) in kept]

    return Stage(name="as_many", says="is not drawn", apply=apply)


def of_all(share: float) -> Stage:
    """Return the stage that keeps the shortest `share` of all episodes, whatever their tasks."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        lengths = [len(example.trajectory.turns) for example in examples]
        cut = float(np.quantile(lengths, share)) if lengths else 0.0
        return [e for e, length in zip(examples, lengths, strict=True) if length <= cut]

    return Stage(name="of_all", says="is longer than the quantile of all", apply=apply)
