"""One table for all levels of an open sokoban: a row for each text that can be seen, so levels share what they teach.

In `sokoban?size=4&walls=0` what is seen (where the player, the box and the target are) is all that there is, so a
policy is a table over these texts, whatever level they are met in. What training levels teach is what is done on
held-out ones that pass through the same texts. Success and return of a level are exact, by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.environments.catalog import find
from quintain.errors import UsageError
from quintain.types import Task, derive_seed
from quintain.worlds.sokoban.game import Sokoban
from quintain.worlds.sokoban.level import MOVES, Level
from quintain_evidence.labs.exact import END, World, exact_values, log_policy
from quintain_evidence.labs.tabular import TablePolicy

SIZE, HORIZON = 4, 20
NUM_DRAWN = 3_000
"""Levels that are drawn once; those of a seed are drawn from them, so that they are spread as those of the world."""


@lru_cache(maxsize=1)
def open_floor() -> World:
    """Return all rows of the table: each is a place of player, box and target; no task starts anywhere yet.

    The expert's move is the first of a shortest way; `distance` is inf in a dead end.
    """
    cells = range(SIZE * SIZE)
    places = [(t, b, p) for t in cells for b in cells for p in cells if b != t and p != b]
    row = {place: number for number, place in enumerate(places)}
    shape = (len(places), len(MOVES))
    following, solved = np.full(shape, END, np.int64), np.zeros(shape, np.bool_)
    for number, (target, box, player) in enumerate(places):
        level = Level(width=SIZE, height=SIZE, walls=(), targets=(target,), player=player, boxes=(box,))
        for column, move in enumerate(MOVES):
            after = level.move(level.start, move)
            there, boxes = level.start if after is None else after
            (where,) = boxes
            if where == target:
                solved[number, column] = True
            else:
                following[number, column] = row[target, where, there]
    away = distances(following, solved)
    return World(
        tasks=(),
        actions=tuple(MOVES),
        horizon=HORIZON,
        start=np.zeros(0, np.int64),
        next=following,
        reward=solved.astype(np.float64),
        is_legal=np.ones(shape, np.bool_),
        is_success=solved,
        task_of=np.zeros(len(places), np.int64),
        keys=tuple(f"player {p}, box {b}, target {t}" for t, b, p in places),
        expert=ways(following, solved, away).argmin(1),
        distance=away,
    )


def ways(
    following: NDArray[np.int64], solved: NDArray[np.bool_], away: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the moves of a shortest way that begins with each move [S, A], inf where there is none."""
    return np.where(solved, 1.0, 1.0 + np.append(away, np.inf)[following])


def distances(following: NDArray[np.int64], solved: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the moves of a shortest way from each row [S], inf in a dead end."""
    away = np.full(len(following), np.inf)
    while True:
        shorter = ways(following, solved, away).min(1)
        if (shorter == away).all():
            return away
        away = shorter


@lru_cache(maxsize=1)
def drawn_rows() -> NDArray[np.int64]:
    """Return the rows at which drawn levels of the world begin, one for each [NUM_DRAWN]."""
    environment = find(f"sokoban?size={SIZE}&walls=0")()
    assert isinstance(environment, Sokoban)
    row = {key: number for number, key in enumerate(open_floor().keys)}
    found: list[int] = []
    for index in range(NUM_DRAWN):
        environment.reset(environment.task("train", index))
        level = environment.snapshot()[0]
        found.append(row[f"player {level.player}, box {level.boxes[0]}, target {level.targets[0]}"])
    return np.array(found, np.int64)


def starting_at(rows: Sequence[int] | NDArray[np.int64]) -> World:
    """Return the floor with a task for each of `rows`, in order."""
    start = np.asarray(rows, np.int64)
    tasks = tuple(
        Task(id=f"levels/{number}", environment="levels", seed=row)
        for number, row in enumerate(start.tolist())
    )
    return replace(open_floor(), tasks=tasks, start=start)


def levels(
    seed: int, count: int, *, least: int = 1, most: int = HORIZON, dead: float = 0.0
) -> NDArray[np.int64]:
    """Return the first rows of `count` levels whose shortest way has `least` to `most` moves, drawn by `seed`.

    The share `dead` of them, at places drawn by `seed`, are rows without any way, evenly over all there are.

    Raises:
        UsageError: no level is so far from its end.
    """
    rng = np.random.default_rng(derive_seed("levels", seed))
    away = open_floor().distance
    pool = drawn_rows()
    pool = pool[(away[pool] >= least) & (away[pool] <= most)]
    if not len(pool):
        raise UsageError(f"levels of {least} to {most} moves: got none; give 1 to 9")
    rows = rng.choice(pool, count)
    is_dead = rng.permutation(count) < round(dead * count)
    rows[is_dead] = rng.choice(np.flatnonzero(np.isinf(away)), int(is_dead.sum()))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """What a policy does on levels, exactly, [levels] each: ``exact(policy, rows).success``."""

    success: NDArray[np.float64]
    """probability of solving the level within the horizon"""
    nearer: NDArray[np.float64]
    """expected cells by which the box is nearer to its target at the end"""
    by_moves: NDArray[np.float64]
    """[H + 1, levels]: probability of solving the level within so many moves"""

    def within(self, moves: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability of solving each level within `moves` [levels]."""
        return self.by_moves[np.minimum(moves, len(self.by_moves) - 1), np.arange(len(moves))]


def exact(policy: TablePolicy, rows: NDArray[np.int64]) -> Exact:
    """Return what `policy` does on the levels that begin at `rows`."""
    floor = open_floor()
    chances = log_policy(floor, policy.theta.detach()).exp()
    solving = exact_values(replace(floor, reward=floor.success), chances).v.numpy()[:, rows]
    moving = exact_values(replace(floor, reward=approach()), chances).v.numpy()[-1, rows]
    return Exact(success=solving[-1], nearer=moving, by_moves=solving)


def approach() -> NDArray[np.float64]:
    """Return by how many cells each move brings the box nearer to its target, [S, A]."""
    floor = open_floor()
    after = np.where(floor.is_success, 0.0, np.append(gaps(), 0.0)[floor.next])
    return gaps()[:, None] - after


@lru_cache(maxsize=1)
def gaps() -> NDArray[np.float64]:
    """Return the cells between box and target of each row, as sokoban counts them, [S]."""
    found: list[int] = []
    for key in open_floor().keys:
        _, box, target = (int(part.split()[-1]) for part in key.split(","))
        found.append(abs(box % SIZE - target % SIZE) + abs(box // SIZE - target // SIZE))
    return np.array(found, np.float64)


def expert_table(*, mistakes: float) -> TablePolicy:
    """Return the policy that takes the expert's move, and with probability `mistakes` one of the others."""
    floor = open_floor()
    chances = torch.full(floor.is_legal.shape, mistakes / (len(MOVES) - 1), dtype=torch.float64)
    chances[torch.arange(floor.num_states), torch.as_tensor(floor.expert)] = 1 - mistakes
    return TablePolicy(floor, chances.clamp(min=1e-12).log())
