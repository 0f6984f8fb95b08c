"""ReST-MCTS*: does a value model that trees have taught find more solutions, or one that knows how deep a state lies?

Levels of sokoban are searched by MCTS* over legal moves, without a policy. A first search, which knows no values, grows
trees in some levels; the value model learns what they imply. The number is whether a held-out level is solved within
a budget of states, roll-outs included. The control is the same model, fitted to the same targets permuted within
their depth in the tree, so that it has the same values and the same trend with depth. In the null world
a search begins one move from a solution, where the first look around decides. How far targets agree with the
distance to a solution, which is told to nobody, stands beside it, and what is solved without any values.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quintain.curriculum.streams import TaskStream
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.search.tree import Path, Seen, Value, ValueTree, process_values
from quintain.search.values import TextValue
from quintain.types import Action, Task, as_text, derive_seed
from quintain.worlds.sokoban.game import Sokoban
from quintain_evidence.layers.inference import rank_correlation

AHEAD = 2
"""moves that each way on is rolled out beyond its first"""
EXPLORATION = 0.1
"""c of the bound: a tree of some twenty nodes is gone through evenly with the .7 of long searches"""
FAR = 99
"""Distance to a solution of a dead end, where rank is all that counts."""
SOME = 60
"""Targets whose distance is asked for, which takes longer than all else."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` held-out levels, each with whether both models' searches solve it."""
    world, num, states = str(options["world"]), int(options["seeds"]), int(options["states"])
    levels = drawn(world, seed, int(options["levels"]) + num)
    shown, held_out = levels[num:], levels[:num]
    true = TextValue()
    targets: list[tuple[Seen, float, int]] = []
    for part in np.array_split(np.arange(len(shown)), int(options["rounds"])):
        found = [
            target
            for place in part
            for target in implied(searched(world, shown[place], true, int(options["taught"]), seed))
        ]
        true.learn([(seen.text, value) for seen, value, _ in found])
        targets += found
    shuffled = TextValue()
    shuffled.learn(permuted(targets, random.Random(seed)))
    agrees = agreement(world, targets)
    return [
        {
            "method": solves(world, task, true, states, seed),
            "control": solves(world, task, shuffled, states, seed),
            "null_method": solves(world, task, true, states, seed, is_near=True),
            "null_control": solves(world, task, shuffled, states, seed, is_near=True),
            "extra.no_values": solves(world, task, nothing, states, seed),
            "extra.agreement": agrees,
            "extra.targets": float(len(targets)),
        }
        for task in held_out
    ]


def nothing(_: str) -> float:
    """Return the value of whoever knows none."""
    return 0.0


def solves(world: str, task: Task, value: Value, states: int, seed: int, *, is_near: bool = False) -> float:
    """Return whether a search for `states` states under `value` finds a solution."""
    paths = searched(world, task, value, states, seed, is_near=is_near)
    return float(any(path[-1].is_solved for path in paths))


def implied(paths: Sequence[Path]) -> list[tuple[Seen, float, int]]:
    """Return the states of a tree that have a value, with it and their depth."""
    depths = {id(seen): depth for path in paths for depth, seen in enumerate(path)}
    return [(seen, value, depths[id(seen)]) for seen, value in process_values(paths)]


def permuted(targets: Sequence[tuple[Seen, float, int]], rng: random.Random) -> list[tuple[str, float]]:
    """Return the texts of `targets` with the values of others that lie as deep."""
    by_depth: dict[int, list[float]] = {}
    for _, value, depth in targets:
        by_depth.setdefault(depth, []).append(value)
    for values in by_depth.values():
        rng.shuffle(values)
    return [(seen.text, by_depth[depth].pop()) for seen, _, depth in targets]


def agreement(world: str, targets: Sequence[tuple[Seen, float, int]]) -> float:
    """Return the rank correlation of values with minus the moves to a solution, over some targets of all trees."""
    level, distances = made(world), list[int]()
    some = [targets[place] for place in np.linspace(0, len(targets) - 1, SOME).astype(int)]
    for seen, _, _ in some:
        level.restore(seen.place[0])
        distance = level.distance()
        distances.append(FAR if distance is None else distance)
    return rank_correlation([value for _, value, _ in some], [-float(distance) for distance in distances])


def drawn(world: str, seed: int, count: int) -> list[Task]:
    """Return levels whose solution takes more than one move, from a place that `seed` names."""
    stream = TaskStream(tasks_of(find(world)), "train")
    place = derive_seed("levels", seed) % 1_000_000
    level, found = made(world), list[Task]()
    while len(found) < count:
        task = stream.at(place)
        place += 1
        begin(level, task)
        if (level.distance() or 0) > 1:
            found.append(task)
    return found


def made(world: str) -> Sokoban:
    """Return a new environment of `world`."""
    level = find(world)()
    assert isinstance(level, Sokoban), "the world of the claim"
    return level


def searched(
    world: str, task: Task, value: Value, states: int, seed: int, *, is_near: bool = False
) -> list[list[Seen]]:
    """Return all paths from the start that a search for `states` states, or until it is solved, has seen.

    It begins one move from a solution where `is_near`.
    """
    level, rng = made(world), random.Random(derive_seed("moves", seed, task.id))
    text = as_text(begin(level, task))
    while is_near and (level.distance() or 0) > 1:
        text = as_text(level.step(level.expert_action()).observation)
    tree = ValueTree(
        Seen(key="", text=text, place=(level.snapshot(), ())), value, exploration=EXPLORATION, gate=1.0
    )
    paths, num = list[list[Seen]](), 0
    while num < states and (node := tree.select()) is not None:
        state, before = node.seen.place
        level.restore(state)
        ways = [walked(level, state, move, before, rng) for move in level.legal_actions()]
        tree.grow(node, ways)
        paths += [[*before, *way] for way in ways]
        num += sum(map(len, ways))
        if any(way[-1].is_solved for way in ways):
            break
    return paths


def walked(level: Sokoban, state: Any, move: str, before: Path, rng: random.Random) -> list[Seen]:
    """Return the states after `move` from `state`, and after up to `AHEAD` moves at random."""
    level.restore(state)
    found: list[Seen] = []
    for _ in range(1 + AHEAD):
        result = level.step(Action(text=move))
        is_solved = bool(result.is_success)
        seen = Seen(
            key=move,
            text=as_text(result.observation),
            is_over=is_solved,
            is_solved=is_solved,
            place=(level.snapshot(), (*before, *found)),
        )
        found.append(seen)
        if is_solved:
            break
        move = rng.choice(level.legal_actions())
    return [replace(s, place=(s.place[0], (*s.place[1], s))) for s in found]
