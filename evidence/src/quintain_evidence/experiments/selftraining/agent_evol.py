"""AgentEvol: does merging the base data into every iteration keep what exploring elsewhere would forget?

A table over the texts of an open sokoban has imitated demonstrations on near levels (three moves at most) and explores
far ones (four moves and more) in three iterations, each from the table before it had imitated anything, by the
method's own stages and loss. The number is the success on the worse of two groups of held-out levels, near and far,
exactly. The control has no base in what it imitates: new successes are repeated in its place, as many. Beside
them: both without starting over. In the null world the explored levels are near ones, too, and many, so there is
nothing that the base alone would know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.data.pipeline import PipelineResult
from quintain.methods.loops.rounds import Rounds
from quintain.methods.selftraining.agent_evol import Config, method
from quintain.types import Group, Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.levels import exact, expert_table, levels, starting_at
from quintain_evidence.labs.rounds import cloned, train_rounds
from quintain_evidence.labs.tables import uniform_start
from quintain_evidence.labs.tabular import TablePolicy

NEAR, FAR = (1, 3), (4, 9)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the success on the worse of two groups of held-out levels."""
    count, held = int(options["levels"]), int(options["held_out"])
    config = Config(tasks=int(options["tasks"]), group_size=int(options["size"]), thresholds="0.99")
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("agent_evol", seed, number)
        shown = demonstrations(own, int(options["demonstrations"]), float(options["mistakes"]))
        groups = [
            levels(derive_seed(own, "held out", least), held, least=least, most=most)
            for least, most in (NEAR, FAR)
        ]

        def learned(
            arm: Rounds, wide: tuple[int, int] = FAR, own: int = own, shown: Sequence[Trajectory] = shown
        ) -> TablePolicy:
            made = replace(arm, update=replace(arm.update, num_epochs=int(options["epochs"])))
            world = starting_at(levels(own, count, least=wide[0], most=wide[1]))
            rate, start = float(options["rate"]), uniform_start(world)
            return train_rounds(
                start,
                made,
                num_rounds=int(options["rounds"]),
                seed=own,
                rate=rate,
                shown=shown,
                explorer=cloned(start, shown, made.update, rate=rate),
            ).policy

        arm = method(config)
        control = repeating(arm, len(shown))
        many = method(replace(config, tasks=int(options["null_tasks"])))
        ends = {
            "method": learned(arm),
            "control": learned(control),
            "going_on": learned(replace(arm, starts_over=False)),
            "going_on_control": learned(replace(control, starts_over=False)),
            "null_method": learned(many, NEAR),
            "null_control": learned(repeating(many, len(shown)), NEAR),
        }
        start = cloned(
            uniform_start(starting_at(groups[0])),
            shown,
            replace(arm.update, num_epochs=int(options["epochs"])),
            rate=float(options["rate"]),
        )
        found.append(
            {
                "method": worse(ends["method"], groups),
                "control": worse(ends["control"], groups),
                "null_method": success(ends["null_method"], groups[0]),
                "null_control": success(ends["null_control"], groups[0]),
                "extra.near": success(ends["method"], groups[0]),
                "extra.far": success(ends["method"], groups[1]),
                "extra.control_near": success(ends["control"], groups[0]),
                "extra.control_far": success(ends["control"], groups[1]),
                "extra.going_on": worse(ends["going_on"], groups),
                "extra.going_on_control": worse(ends["going_on_control"], groups),
                "extra.start_near": success(start, groups[0]),
                "extra.start_far": success(start, groups[1]),
            }
        )
    return found


def demonstrations(seed: int, count: int, mistakes: float) -> list[Trajectory]:
    """Return the successes among `count` episodes on near levels of an expert that errs."""
    own = derive_seed(seed, "shown")
    world = starting_at(levels(own, count, least=NEAR[0], most=NEAR[1]))
    shown = TablePolicy(world, expert_table(mistakes=mistakes).theta).sample(size=1, seed=own)
    return [trajectory for trajectory in flatten_scored(shown) if trajectory.is_success]


def repeating(arm: Rounds, count: int) -> Rounds:
    """Return `arm` without its base in what is imitated; `count` of the new successes stand in, over and over."""
    line = arm.build

    def build(groups: Sequence[Group]) -> PipelineResult:
        made = line(groups)
        return PipelineResult(
            examples=(*made.examples, *islice(cycle(made.examples), count)) if made.examples else (),  # pyright: ignore[reportAttributeAccessIssue]
            funnel=made.funnel,  # pyright: ignore[reportAttributeAccessIssue]
        )

    return replace(arm, build=build, merges_base=False)


def success(policy: TablePolicy, rows: NDArray[np.int64]) -> float:
    """Return the success of `policy` on the levels at `rows`."""
    return float(exact(policy, rows).success.mean())


def worse(policy: TablePolicy, groups: Sequence[NDArray[np.int64]]) -> float:
    """Return the success of `policy` on that group of levels on which it is lower."""
    return min(success(policy, rows) for rows in groups)
