"""AndroidGen: do failures teach up to their last subgoal, or is any piece of a failure as good?

A table over the texts of an open sokoban has imitated forty demonstrations of an expert that errs. In each round it
tries levels; what it solved is imitated whole, and of each failure the moves up to the last that brought the box nearer
for good. The number is success on held-out levels, exactly. The control imitates as many moves of the same failures, a
window at a random place. In the null world the box is one cell from its target, and no failure has a subgoal: both arms
are equal bit for bit. Beside them: what was solved alone, and failures up to the place of another's subgoal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.agents.experience import Experience
from quintain.credit_lab.permute import permute
from quintain.data.pipeline import Stage, as_example, weigh_turns
from quintain.methods.loops.rounds import Rounds
from quintain.methods.selftraining import androidgen
from quintain.types import Example, Trajectory, derive_seed
from quintain_evidence.experiments.selftraining.rest import weak_table
from quintain_evidence.labs.exact import World
from quintain_evidence.labs.levels import exact, gaps, levels, starting_at
from quintain_evidence.labs.rounds import train_rounds
from quintain_evidence.labs.tabular import TablePolicy

Weigh = Callable[[Sequence[Trajectory], Sequence[int]], list[list[float]]]
"""(failures, turns up to the last subgoal of each) → weights of the turns of each"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the success on held-out levels."""
    config = androidgen.Config(
        tasks=int(options["tasks"]), group_size=int(options["size"]), memory=False, oversample_factor=1
    )
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("androidgen", seed, number)
        rows = levels(own, int(options["levels"]))
        world, near = starting_at(rows), starting_at(one_cell(own, int(options["levels"])))
        held_out = levels(derive_seed(own, "held out"), int(options["held_out"]))
        start = weak_table(own, demonstrations=int(options["demonstrations"]))

        def success(
            build: Stage, world: World = world, own: int = own, start: TablePolicy = start,
            held_out: NDArray[np.int64] = held_out,
        ) -> float:  # fmt: skip
            arm: Rounds = androidgen.method(config)
            made = replace(
                arm,
                collect=androidgen.sample_experienced(config, Experience(), build),
                update=replace(arm.update, num_epochs=int(options["epochs"])),
            )
            run = train_rounds(
                TablePolicy(world, start.theta), made,
                num_rounds=int(options["rounds"]), seed=own, rate=float(options["rate"]),
            )  # fmt: skip
            return float(exact(run.policy, held_out).success.mean())

        method, control = androidgen.cut_behind_reached(progress), pieces(windows(own))
        reached = success(method)
        found.append(
            {
                "method": reached,
                "control": success(control),
                "null_method": success(method, near),
                "null_control": success(control, near),
                "extra.over_solved": reached
                - success(androidgen.cut_behind_reached(progress, has_failures=False)),
                "extra.over_elsewhere": reached - success(pieces(elsewhere(own))),
                "extra.start": float(exact(start, held_out).success.mean()),
            }
        )
    return found


def one_cell(seed: int, count: int) -> NDArray[np.int64]:
    """Return the first rows of `count` levels whose box is one cell from its target."""
    rows = levels(seed, 50 * count)
    return rows[gaps()[rows] == 1][:count]


def progress(trajectory: Trajectory) -> list[float]:
    """Return by how many cells the box is nearer to its target than at first, before each turn."""
    rows = [turn.prompt_ids[0] for turn in trajectory.turns]
    return [max(0.0, float(gaps()[rows[0]] - gaps()[row])) for row in rows]


def pieces(weigh: Weigh) -> Stage:
    """Return the stage that keeps what was solved whole, and of failures with a subgoal what `weigh` says."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        failed = [e.trajectory for e in examples if not e.trajectory.is_success]
        kept = [(t, n) for t in failed if (n := androidgen.num_kept(progress(t)))]
        weights = weigh([t for t, _ in kept], [n for _, n in kept]) if kept else []
        return [
            *(e for e in examples if e.trajectory.is_success),
            *(weigh_turns(as_example(t), own) for (t, _), own in zip(kept, weights, strict=True)),
        ]

    return Stage(name="pieces", says="failed without a subgoal", apply=apply)


def windows(seed: int) -> Weigh:
    """Return windows at random places, as long as the ways to the last subgoals; they go on at the beginning."""

    def weigh(failed: Sequence[Trajectory], kept: Sequence[int]) -> list[list[float]]:
        found: list[list[float]] = []
        for t, n in zip(failed, kept, strict=True):
            size = len(t.turns)
            first = int(np.random.default_rng(derive_seed("window", seed, t.seed, t.index)).integers(size))
            found.append([float((turn - first) % size < n) for turn in range(size)])
        return found

    return weigh


def elsewhere(seed: int) -> Weigh:
    """Return the beginnings of failures up to the place of another's last subgoal."""

    def weigh(failed: Sequence[Trajectory], kept: Sequence[int]) -> list[list[float]]:
        others = permute(kept, seed=seed).values if len(kept) > 1 else kept
        return [
            [float(turn < n) for turn in range(len(t.turns))] for t, n in zip(failed, others, strict=True)
        ]

    return weigh
