"""TTI: horizons that grow, and the same horizons the other way round.

A plain of 19 by 19 places has a goal in its middle; a policy sees where it stands beside the goal and takes one of four
steps, and tasks begin everywhere, so that far ones pass through near ones. It begins as good as random. Twelve steps of
the method, at its defaults (horizons 10, 20, 30, four steps each), take as many steps of the plain each; what succeeded
goes into the method's own buffer and is drawn by its own weights. The control has the horizons in reverse order, as
many steps of each. The number is the exact success at the longest horizon on tasks that begin twelve steps away
or farther. In the null world tasks begin one to three steps away. The rival has the longest horizon, that of the test,
throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from quintain.learning.update import minibatches
from quintain.methods.horizon import tti
from quintain.methods.loops.replay import Buffer, UpdateSamples
from quintain.types import Group, Task, derive_seed, flatten_scored
from quintain_evidence.labs.exact import END, World, exact_values
from quintain_evidence.labs.tabular import TablePolicy, packed

REACH = 9
"""places on each side of the goal"""
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))
STEPS = 12
FAR, NEAR = 12, 3
QUERIES: Any = None
"""the method asks no policy anything"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the exact success at the longest horizon after training."""
    config = tti.Config(batch_size=int(options.get("batch", 256)))
    limits = [tti.horizon(config, step) for step in range(1, STEPS + 1)]
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("tti", seed, number)
        far, near = plain(own, most=2 * REACH), plain(own, most=NEAR)

        def arm(start: TablePolicy, order: Sequence[int], own: int = own) -> tuple[TablePolicy, int]:
            return train(start, config, order, options, own)

        grown, steps = arm(far, limits)
        shrunk, other = arm(far, limits[::-1])
        found.append(
            {
                "method": far_success(grown),
                "control": far_success(shrunk),
                "null_method": success(arm(near, limits)[0]),
                "null_control": success(arm(near, limits[::-1])[0]),
                "extra.long": far_success(arm(far, [config.max_turns] * STEPS)[0]),
                "extra.start": far_success(far),
                "extra.steps": steps / other,
            }
        )
    return found


def train(
    start: TablePolicy, config: tti.Config, limits: Sequence[int], options: Mapping[str, Any], seed: int
) -> tuple[TablePolicy, int]:
    """Train a copy of `start` by the method, with episodes of at most `limits` turns; return it and the steps taken."""
    method, policy = tti.method(config), start.copy()
    applied = torch.optim.Adam(policy.parameters, float(options.get("rate", 0.2)))
    buffer, total = Buffer(method.buffer), 0
    (update,) = method.updates
    for step, limit in enumerate(limits, 1):
        groups = collect(policy, limit, int(options.get("steps", 3000)), derive_seed(seed, step))
        total += sum(len(t.turns) for t in flatten_scored(groups))
        buffer.add(step, method.reward(groups))
        if not len(buffer):
            continue
        assert method.buffer.priority is not None, "it draws by age"
        buffer.weigh(method.buffer.priority(buffer.episodes, QUERIES))
        made = update.target(buffer.draw(derive_seed(seed, step, "draw")), QUERIES)
        assert isinstance(made, UpdateSamples), "it imitates"
        for part in minibatches(made.samples, int(options.get("parts", 8)), derive_seed(seed, step, "parts")):
            batch = packed([made.samples[i] for i in part], update.update)
            applied.zero_grad()
            update.update.loss(policy(batch), batch).loss.backward()
            applied.step()
    return policy, total


def collect(policy: TablePolicy, limit: int, steps: int, seed: int) -> list[Group]:
    """Return episodes of at most `limit` turns that begin anywhere, until they took `steps` steps together."""
    limited = TablePolicy(replace(policy.world, horizon=limit), policy.theta)
    rng = np.random.default_rng(seed)
    groups: list[Group] = []
    count = 0
    while count < steps:
        tasks = rng.integers(0, len(policy.world.tasks), 32).tolist()
        groups += limited.sample(size=1, seed=derive_seed(seed, len(groups)), tasks=tasks)
        count = sum(len(t.turns) for t in flatten_scored(groups))
    return groups


def plain(seed: int, *, most: int) -> TablePolicy:
    """Return the plain with tasks that begin 1 to `most` steps from the goal, and a policy as good as random."""
    side = range(-REACH, REACH + 1)
    places = [(x, y) for x in side for y in side if (x, y) != (0, 0)]
    row = {place: number for number, place in enumerate(places)}
    shape = (len(places), len(MOVES))
    following, solved = np.full(shape, END, np.int64), np.zeros(shape, np.bool_)
    for number, (x, y) in enumerate(places):
        for column, (right, up) in enumerate(MOVES):
            there = (min(max(x + right, -REACH), REACH), min(max(y + up, -REACH), REACH))
            solved[number, column] = there == (0, 0)
            following[number, column] = row.get(there, END)
    away = np.array([abs(x) + abs(y) for x, y in places], np.float64)
    starts = np.flatnonzero(away <= most)
    world = World(
        tasks=tuple(Task(id=f"plain/train/{k}", environment="plain", seed=k) for k in starts.tolist()),
        actions=("north", "south", "east", "west"),
        horizon=tti.Config().max_turns,
        start=starts.astype(np.int64),
        next=following,
        reward=solved.astype(np.float64),
        is_legal=np.ones(shape, np.bool_),
        is_success=solved,
        task_of=np.zeros(len(places), np.int64),
        keys=tuple(f"{x} {y}" for x, y in places),
        expert=np.full(len(places), END, np.int64),
        distance=away,
    )
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    return TablePolicy(world, 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64))


def success(policy: TablePolicy, chosen: Callable[[float], bool] = lambda _: True) -> float:
    """Return the exact success at the world's horizon on the tasks whose distance is `chosen`, evenly."""
    world = policy.world
    by_task = exact_values(world, policy.probabilities()).by_task.numpy()
    return float(by_task[[chosen(away) for away in world.distance[world.start].tolist()]].mean())


def far_success(policy: TablePolicy) -> float:
    """Return the exact success on the tasks that begin far away."""
    return success(policy, lambda away: away >= FAR)
