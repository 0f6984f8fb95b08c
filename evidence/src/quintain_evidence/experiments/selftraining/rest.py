"""ReST: is it the rising threshold that teaches, or that later improve steps see fewer episodes again?

A table over the texts of an open sokoban has imitated forty demonstrations of an expert that errs. It grows twice and
improves three times on each collection, by the method's own stages, rates and loss; rewards are graded (half for the
box being nearer). The number is the mean return on held-out levels, exactly. The control improves on nested random
subsets of the episodes above the first threshold, as many as each of the thresholds keeps. In the null world rewards
are 0 or 1, so every threshold below 1 keeps the same episodes. Beside them: the first threshold alone, at every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.data.pipeline import Pipeline, PipelineResult, Stage
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.selftraining.rest import Config, above, method
from quintain.types import Example, Group, Score, Task, Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.levels import (
    approach,
    exact,
    expert_table,
    gaps,
    levels,
    open_floor,
    starting_at,
)
from quintain_evidence.labs.rounds import cloned, train_rounds
from quintain_evidence.labs.tables import uniform_start
from quintain_evidence.labs.tabular import TablePolicy

THRESHOLDS = (0.0, 0.25, 0.5)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the mean return on held-out levels."""
    rounds, rate, epochs = int(options["rounds"]), float(options["rate"]), int(options["epochs"])
    config = Config(tasks=int(options["tasks"]), group_size=int(options["size"]), thresholds=THRESHOLDS)
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("rest", seed, number)
        world = starting_at(levels(own, int(options["levels"])))
        held_out = levels(derive_seed(own, "held out"), int(options["held_out"]))
        start = weak_table(own, demonstrations=int(options["demonstrations"]))
        start = TablePolicy(world, start.theta)

        def learned(
            arm: Rounds, is_graded: bool = True, own: int = own, start: TablePolicy = start
        ) -> TablePolicy:
            made = replace(arm, update=replace(arm.update, num_epochs=epochs))
            play = partial(graded, is_graded=is_graded)
            return train_rounds(start, made, num_rounds=rounds, seed=own, rate=rate, play=play).policy

        rising, random = method(config), nested(method(config), own)
        constant = replace(rising, later=[replace(step, build=rising.build) for step in rising.later])
        ends = {
            name: learned(arm)
            for name, arm in (("rising", rising), ("random", random), ("constant", constant))
        }
        alike, alike_control = learned(rising, is_graded=False), learned(random, is_graded=False)
        found.append(
            {
                "method": worth(ends["rising"], held_out),
                "control": worth(ends["random"], held_out),
                "null_method": worth(alike, held_out),
                "null_control": worth(alike_control, held_out),
                "extra.constant": worth(ends["constant"], held_out),
                "extra.start": worth(start, held_out),
                "extra.start_success": float(exact(start, held_out).success.mean()),
                "extra.success": float(exact(ends["rising"], held_out).success.mean()),
                "extra.entropy_fell": entropy(start, held_out) - entropy(ends["rising"], held_out),
            }
        )
    return found


def weak_table(seed: int, *, demonstrations: int) -> TablePolicy:
    """Return the table that has imitated `demonstrations` episodes of an expert that errs in 40 % of its moves."""
    world = starting_at(levels(derive_seed(seed, "shown"), demonstrations))
    shown = TablePolicy(world, expert_table(mistakes=0.4).theta).sample(
        size=1, seed=derive_seed(seed, "shown")
    )
    return cloned(
        uniform_start(world), flatten_scored(shown), Update(loss=imitation(), num_epochs=20), rate=0.1
    )


def graded(
    policy: TablePolicy, tasks: Sequence[Task], size: int, seed: int, *, is_graded: bool
) -> list[Group]:
    """Return episodes as `reward=dense` pays them: half for the end, half for the way that the box made."""
    places = {id(task): number for number, task in enumerate(policy.world.tasks)}
    groups = policy.sample(size=size, seed=seed, tasks=[places[id(task)] for task in tasks])
    if not is_graded:
        return groups
    nearer, far = approach(), gaps()

    def paid(trajectory: Trajectory) -> Trajectory:
        first = trajectory.turns[0].prompt_ids[0]
        turns = tuple(
            replace(
                turn,
                reward=0.5 * turn.reward
                + 0.5
                * float(nearer[turn.prompt_ids[0], turn.completion.token_ids[0] - open_floor().num_states])
                / float(far[first]),
            )
            for turn in trajectory.turns
        )
        value = round(sum(turn.reward for turn in turns), 9)
        return replace(trajectory, turns=turns, outcome=Score(value=value, is_success=trajectory.is_success))

    return [replace(group, trajectories=tuple(paid(t) for t in group.trajectories)) for group in groups]


def worth(policy: TablePolicy, rows: NDArray[np.int64]) -> float:
    """Return the mean expected graded return on the levels that begin at `rows`."""
    done = exact(policy, rows)
    return float((0.5 * done.success + 0.5 * done.nearer / gaps()[rows]).mean())


def entropy(policy: TablePolicy, rows: NDArray[np.int64]) -> float:
    """Return the mean entropy of the first move on the levels that begin at `rows`, in nats."""
    logs = torch.log_softmax(policy.theta.detach()[torch.as_tensor(rows)], -1)
    return float(-(logs.exp() * logs).sum(-1).mean())


def nested(arm: Rounds, seed: int) -> Rounds:
    """Return `arm` whose later thresholds are replaced: as many of what the one before kept, drawn at random.

    A threshold that keeps all that the one before it kept leaves the same episodes.
    """
    lines = [Pipeline(above(threshold)) for threshold in THRESHOLDS]

    def drawn(number: int, groups: Sequence[Group]) -> PipelineResult:
        sizes = [len(line(groups).examples) for line in lines[: number + 1]]

        def fewer(examples: Sequence[Example]) -> list[Example]:
            kept = list(examples)
            for place, size in enumerate(sizes[1:], 1):
                if size < len(kept):
                    rng = np.random.default_rng(derive_seed("nested", seed, kept[0].sources[0], place))
                    kept = [kept[k] for k in sorted(rng.choice(len(kept), size, replace=False).tolist())]
            return kept

        return Pipeline(above(THRESHOLDS[0]), Stage(name="fewer", says="is not drawn", apply=fewer))(groups)

    later = [replace(step, build=partial(drawn, number)) for number, step in enumerate(arm.later, 1)]
    return replace(arm, later=later)
