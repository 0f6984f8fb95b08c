"""OWL: does a planner that learned with some workers help others, or would it have been as good to train the workers?

A task is three parts in an order that only its kind tells. The planner names a part, a worker tries it: the right part
brings the task on if the worker does what it takes, and the planner is told that the worker failed, that the part is
not due, or nothing. A crew has a worker for each part, of whom every second one is good. Both roles are tables.
Episodes with crew A make pairs as they ship, and the planner learns from its turns. The number is what that adds to
success with crew B, in which three of A's six workers are exchanged for others. The control learns as long from the
same pairs on the turns of the workers. In the null world planner and workers do everything right: there is no pair.

Beside it: the gain of both with A, the planner's with crew C, in which all workers are others, and what the planner
loses where it is told of another failure than there was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.data.pairs import best_and_worst
from quintain.data.seats import split_seats
from quintain.learning.train_config import MAIN
from quintain.losses.preference import dpo
from quintain.methods.preference.owl import WORKER, keep_groups_of
from quintain.methods.preference.roles import ACTOR, PLANNER
from quintain.types import Group, Task, Trajectory, Turn, derive_seed
from quintain_evidence.experiments.preference.blocks import Blocks
from quintain_evidence.experiments.preference.eto import learned
from quintain_evidence.labs.exact import END, World, exact_values

KINDS, STAGES, PARTS, ATTEMPTS = 6, 3, 6, 6
"""Kinds of tasks; parts of a task, of so many there are; parts that are tried in an episode, at most."""
Crew = Literal["A", "B", "C"]
CREWS: tuple[Crew, ...] = ("A", "B", "C")
GOOD, POOR = 0.95, 0.75
"""How often a worker does its part, every second one and the others; those that are exchanged the other way round."""
Told = tuple[str, int]
"""What the planner is told of its last part: ("", -1), ("failed", part) or ("not due", part)."""
NOTHING_TOLD: Told = ("", -1)
Row = tuple[Crew, int, int, Told, int]
"""Crew, kind, stage, what is told, and the part that a worker is to do, -1 where the planner is to name one."""


def orders(seed: int) -> NDArray[np.int64]:
    """Return the parts of each kind of task in their order, [kinds, stages]."""
    rng = np.random.default_rng(seed % (1 << 63))
    return np.array([rng.permutation(PARTS)[:STAGES] for _ in range(KINDS)])


@cache
def workforce(seed: int) -> tuple[Blocks, tuple[Row, ...]]:
    """Return the tasks of `seed` with all crews, and what its states are.

    Rows of the planner are shared by crews, those of a worker by tasks.
    """
    due = orders(seed)
    told: list[Told] = [
        NOTHING_TOLD,
        *((word, part) for word in ("failed", "not due") for part in range(PARTS)),
    ]
    rows: list[Row] = [
        (crew, kind, stage, each, part)
        for crew in CREWS
        for kind in range(KINDS)
        for stage in range(STAGES)
        for each in told
        for part in range(-1, PARTS)
        if part < 0 or each == NOTHING_TOLD
    ]
    place = {row: number for number, row in enumerate(rows)}
    shape = (len(rows), PARTS)
    following, reward, cells = np.full(shape, END), np.zeros(shape), np.zeros(shape, np.int64)
    names: list[tuple[object, ...]] = [
        ("plan", kind, stage, each, action)
        for kind in range(KINDS)
        for stage in range(STAGES)
        for each in told
        for action in range(PARTS)
    ]
    names += [
        ("work", is_new, part, action)
        for is_new in (0, 1)
        for part in range(PARTS)
        for action in range(PARTS)
    ]
    cell = {name: number for number, name in enumerate(names)}
    for number, (crew, kind, stage, each, part) in enumerate(rows):
        for action in range(PARTS):
            if part < 0:
                following[number, action] = place[crew, kind, stage, NOTHING_TOLD, action]
                cells[number, action] = cell["plan", kind, stage, each, action]
            else:
                is_due, is_done = part == due[kind, stage], action == part
                if is_due and is_done and stage + 1 == STAGES:
                    reward[number, action] = 1.0
                elif is_due and is_done:
                    following[number, action] = place[crew, kind, stage + 1, NOTHING_TOLD, -1]
                else:
                    after: Told = ("failed" if is_due else "not due", part)
                    following[number, action] = place[crew, kind, stage, after, -1]
                cells[number, action] = cell["work", is_exchanged(crew, part), part, action]
    tasks: list[tuple[Crew, int]] = [(crew, kind) for crew in CREWS for kind in range(KINDS)]
    world = World(
        tasks=tuple(Task(id=f"work/train/{k}", environment="work", seed=k) for k in range(len(tasks))),
        actions=tuple(f"part {k}" for k in range(PARTS)),
        horizon=2 * ATTEMPTS,
        start=np.array([place[crew, kind, 0, NOTHING_TOLD, -1] for crew, kind in tasks]),
        next=following,
        reward=reward,
        is_legal=np.ones(shape, np.bool_),
        is_success=reward > 0,
        task_of=np.array([tasks.index((crew, kind)) for crew, kind, *_ in rows]),
        keys=tuple(map(repr, rows)),
        expert=np.array([due[kind, stage] if part < 0 else part for _, kind, stage, _, part in rows]),
        distance=np.ones(len(rows)),
    )
    return Blocks(world, cells, len(names)), tuple(rows)


def is_exchanged(crew: Crew, part: int) -> bool:
    """Return whether another worker than A's does `part`: in B the first three, in C all."""
    return crew == "C" or (crew == "B" and part < PARTS // 2)


def tasks_of(crew: Crew) -> range:
    """Return the numbers of the tasks that `crew` works on."""
    first = CREWS.index(crew) * KINDS
    return range(first, first + KINDS)


def beginner(made: Blocks, rows: Sequence[Row], options: Mapping[str, Any], seed: int) -> Tensor:
    """Return logits [cells]: a planner who is right now and then and heeds what it is told, and workers."""
    rng = np.random.default_rng(seed % (1 << 63))
    shared = 0.5 * rng.normal(size=made.num_cells)
    skill, heeds = float(options.get("skill", 1.0)), float(options.get("heeds", 2.0))
    found = shared.copy()
    for number, (crew, _, _, (word, last), part) in enumerate(rows):
        own, right = made.cells[number], int(made.world.expert[number])
        if part < 0:
            found[own] = shared[own]
            found[own[right]] += skill
            if word:
                found[own[last]] += heeds if word == "failed" else -heeds
        else:
            chance = GOOD if (part % 2 == 0) != is_exchanged(crew, part) else POOR
            found[own] = 0.0
            found[own[part]] = np.log(chance / (1 - chance) * (PARTS - 1))
    return torch.from_numpy(found)


def perfect(made: Blocks) -> Tensor:
    """Return logits [cells] of a planner and workers who do everything right."""
    found = torch.zeros(made.num_cells, dtype=torch.float64)
    right = made.cells[np.arange(len(made.cells)), made.world.expert]
    found[torch.from_numpy(right)] = 30.0
    return found


def as_played(groups: Sequence[Group]) -> list[Group]:
    """Return the episodes of a table as those of two roles that different policies play: planner, worker, and again."""

    def turn(number: int, each: Turn) -> Turn:
        policy = WORKER if number % 2 else MAIN
        return replace(
            each, seat=ACTOR if number % 2 else PLANNER, completion=replace(each.completion, policy=policy)
        )

    def played(each: Trajectory) -> Trajectory:
        return replace(each, turns=tuple(turn(number, own) for number, own in enumerate(each.turns)))

    return [replace(group, trajectories=tuple(map(played, group.trajectories))) for group in groups]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications."""
    return [replication(options, derive_seed(seed, number)) for number in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what one workforce comes to."""
    made, rows = workforce(seed)
    start = beginner(made, rows, options, seed)
    found: dict[str, float] = {}
    before = {crew: success(made, start, crew) for crew in CREWS}
    ends: dict[str, Tensor] = {}
    for prefix, own in (("", start), ("null_", perfect(made))):
        played = made.policy(own).sample(
            size=int(options.get("tries", 4)),
            seed=derive_seed(seed, "pairs"),
            tasks=[*tasks_of("A")] * int(options.get("groups", 8)),
        )
        parts = split_seats(as_played(played))
        for arm, policy in (("method", MAIN), ("control", WORKER)):
            pairs = best_and_worst(keep_groups_of(parts, policy))
            ends[prefix + arm] = learned(made, own, pairs, dpo(0.1), options)
            found[prefix + arm] = success(made, ends[prefix + arm], "B") - success(made, own, "B")
            if prefix + arm == "method":
                found["extra.pairs"] = float(len(pairs))
    planner, workers = (success(made, ends[arm], "A") - before["A"] for arm in ("method", "control"))
    told = success(made, ends["method"], "B")
    return found | {
        "extra.start": before["B"],
        "extra.gain_a": planner,
        "extra.workers_gain_a": workers,
        "extra.kept": success(made, ends["method"], "C") - before["C"] - 0.7 * planner,
        "extra.told": told - success(made, ends["method"], "B", rows=rows),
    }


def success(made: Blocks, shared: Tensor, crew: Crew, *, rows: Sequence[Row] = ()) -> float:
    """Return the exact success with `crew`; with `rows`, where the planner is told of some other failure each time."""
    chances = made.policy(shared).probabilities()
    if rows:
        chances = chances.clone()
        alike: dict[tuple[Crew, int, int], list[int]] = {}
        for number, (own, kind, stage, told, part) in enumerate(rows):
            if part < 0 and told != NOTHING_TOLD:
                alike.setdefault((own, kind, stage), []).append(number)
        for numbers in alike.values():
            chances[numbers] = chances[numbers].mean(0)
    by_task = exact_values(made.world, chances).by_task
    return float(by_task[list(tasks_of(crew))].mean())
