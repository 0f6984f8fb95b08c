"""The worlds and starting tables of the tabular lab: S3 (a small sokoban) and A16 (sixteen arms and a decoy).

S3 is `sokoban?size=3&walls=0`: a box in a corner stays there, so a wrong push ends all hope long before the episode
ends. S3-mid imitated the expert until it solves about half; S3-new is random. A16 has one state, a good arm that is
seldom tried, and a decoy that pays half. Tasks and tables of a seed are always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.errors import UsageError
from quintain.types import Task, derive_seed
from quintain.worlds.sokoban.game import Sokoban
from quintain.worlds.sokoban.level import MOVES
from quintain_evidence.labs.exact import END, World, enumerate_world, exact_values, log_policy
from quintain_evidence.labs.tabular import TablePolicy

HORIZON, NUM_TASKS = 8, 16
MOST_DRAWN = 20_000
"""Tasks that are looked at for those of the wanted distances."""
STRENGTH = 30.0
"""Largest number that is added to the logit of the expert's action."""


@lru_cache(maxsize=64)
def s3(
    seed: int,
    *,
    num_tasks: int = NUM_TASKS,
    horizon: int = HORIZON,
    distances: tuple[int, ...] = (),
    size: int = 3,
) -> World:
    """Return S3 with tasks drawn by `seed`: `num_tasks` of sokoban with `size` by `size` cells and without walls.

    Task i is one whose shortest solution has ``distances[i % len(distances)]`` moves; without `distances`, any number
    that fits into the horizon. All four moves can be made in every state; one without effect costs its turn.

    Raises:
        UsageError: a distance does not fit into the horizon, or no task has it.
    """
    if any(not 1 <= away <= horizon for away in distances):
        raise UsageError(f"distances of tasks: got {distances}; give moves from 1 to the horizon, {horizon}")
    make = find(f"sokoban?size={size}&walls=0")
    wanted = [distances[i % len(distances)] if distances else None for i in range(num_tasks)]
    found: dict[int, Task] = {}
    environment = make()
    assert isinstance(environment, Sokoban)
    first = derive_seed("S3", seed) % (1 << 40)
    for index in range(first, first + MOST_DRAWN):
        task = environment.task("train", index)
        begin(environment, task)
        away = environment.distance()
        if away is None or not 1 <= away <= horizon:
            continue
        place = next((i for i, want in enumerate(wanted) if i not in found and want in (None, away)), None)
        if place is not None:
            found[place] = task
        if len(found) == num_tasks:
            break
    else:
        raise UsageError(
            f"tasks of S3: got {len(found)} of {num_tasks} with distances {distances}; take others"
        )
    tasks = [found[i] for i in range(num_tasks)]
    return enumerate_world(make, tasks, horizon=horizon, actions=tuple(MOVES))


def new_table(world: World, seed: int, *, scale: float = 0.5) -> TablePolicy:
    """Return a table of random logits of standard deviation `scale`: S3-new."""
    generator = torch.Generator().manual_seed(derive_seed("table", seed) % (1 << 63))
    return TablePolicy(
        world, scale * torch.randn(world.is_legal.shape, generator=generator, dtype=torch.float64)
    )


def fitted_table(
    world: World, seed: int, *, until: float | Sequence[float] = 0.55, scale: float = 0.5
) -> TablePolicy:
    """Return a random table fitted to the expert until J is `until`, to a thousandth: S3-mid.

    One number is added to the logit of the expert's action in every state that has one (it may be negative), so the
    table stays random in everything else. A sequence gives each task a target, and a number, of its own.

    Raises:
        UsageError: a target cannot be reached: 0, 1, or more than the expert has.
    """
    theta = new_table(world, seed, scale=scale).theta.detach()
    is_one = isinstance(until, float | int)
    goals = torch.tensor([until] if isinstance(until, float | int) else list(until), dtype=torch.float64)
    if not is_one and len(goals) != len(world.tasks):
        raise UsageError(
            f"targets of {len(world.tasks)} tasks: got {len(goals)}; give one for each, or one number"
        )
    known = torch.as_tensor((world.expert != END) & np.isfinite(world.distance))
    wanted = torch.zeros_like(theta)
    wanted[known, torch.as_tensor(world.expert)[known]] = 1.0
    of_task = torch.as_tensor(world.task_of)

    def shifted(strength: Tensor) -> Tensor:
        return theta + wanted * strength.expand(len(world.tasks))[of_task][:, None]

    def reached(strength: Tensor) -> Tensor:
        by_task = exact_values(world, log_policy(world, shifted(strength)).exp()).by_task
        return by_task.mean()[None] if is_one else by_task

    low, high = torch.full_like(goals, -STRENGTH), torch.full_like(goals, STRENGTH)
    for _ in range(60):
        middle = (low + high) / 2
        is_below = reached(middle) < goals
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    found = reached(high)
    if (found - goals).abs().max() > 1e-3:
        raise UsageError(
            f"a table fitted until J is {until}: got {float(found.max()):.3f} at best; give targets between those of "
            "a policy that avoids the expert's actions and of the expert"
        )
    return TablePolicy(world, shifted(high))


def uniform_start(world: World) -> TablePolicy:
    """Return the table whose actions are all as likely."""
    return TablePolicy(world, torch.zeros(world.is_legal.shape, dtype=torch.float64))


def arms(rewards: Sequence[float], *, chance: Sequence[float] | None = None) -> World:
    """Return a world of one state whose actions pay `rewards` and end the episode; paying 1 is solving it.

    With `chance` an arm pays 1 with that probability, and nothing else; then `rewards` only count the arms.
    """
    num = len(rewards)
    paid = np.array([rewards], np.float64) if chance is None else np.array([chance], np.float64)
    return World(
        tasks=(Task(id="arms/train/0", environment="arms", seed=0),),
        actions=tuple(f"arm {i}" for i in range(num)),
        horizon=1,
        start=np.zeros(1, np.int64),
        next=np.full((1, num), END, np.int64),
        reward=paid,
        is_legal=np.ones((1, num), np.bool_),
        is_success=paid >= 1.0,
        task_of=np.zeros(1, np.int64),
        keys=("start",),
        expert=np.array([int(paid[0].argmax())]),
        distance=np.ones(1),
        chance=None if chance is None else paid,
    )


def a16(
    seed: int,
    *,
    good: float = 0.02,
    decoy: float = 0.5,
    share: float = 0.2,
    num_arms: int = 16,
    scale: float = 0.3,
) -> TablePolicy:
    """Return A16: one state, arm 0 pays 1 and is taken with probability `good`, arm 1 pays `decoy`, the rest nothing.

    The decoy is taken with probability `share` at first, so whoever goes too far on one batch ends there. The logits
    of the other arms are random, of standard deviation `scale`.
    """
    world = arms([1.0, decoy, *[0.0] * (num_arms - 2)])
    theta = new_table(world, seed, scale=scale).theta.detach()
    rest = torch.logsumexp(theta[0, 2:], 0)
    theta[0, 0] = rest + np.log(good / (1 - good - share))
    theta[0, 1] = rest + np.log(share / (1 - good - share))
    return TablePolicy(world, theta)
