"""EPO: is it the turns that its scores point at which make a strategist better, or would any weights of that size do?

A strategist names one of five things in each turn, and an actor that cannot learn goes there. In each of three rooms
one thing leads on, one leads back to the room before, and at the others nothing happens: a table of three states for
each of sixteen tasks, whose trained turns are the strategist's alone. The number is the exact success after training
with the scores of the method. The control permutes them over the turns of every episode: the same sum on the same
turns, at one rate and from one start. In the null world the actor does not listen while the strategist learns: it goes
where it likes, whatever it is told, so that no score says anything of a name; what was learned is then measured with
an actor that does. The gate says that names matter: an actor that goes where it likes solves less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import permute
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.rl import epo
from quintain.types import Credit, Group, Task, Trajectory, Turn, derive_seed
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.tables import uniform_start
from quintain_evidence.labs.tabular import TablePolicy, states_of, train_table

TASKS, ROOMS, THINGS, TURNS = 16, 3, 5, 8
PAPER = 0.99
"""Discount of the paper, with which the scores of a turn that led on and of one before it are nearly the same."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the exact success after training."""
    found: list[Mapping[str, float]] = []
    discount = float(options.get("discount", 0.5))
    for number in range(int(options["seeds"])):
        own = derive_seed("epo", seed, number)
        start = strategist(house(own), own, skill=float(options.get("skill", 0.4)))
        scores, paper = (epo.method(epo.Config(discount=share)) for share in (discount, PAPER))
        arms = {
            "method": scores,
            "control": permuted(scores, own),
            "extra.baseline": epo.method(epo.Config(is_weighted=False)),
            "extra.paper": paper,
            "extra.paper_control": permuted(paper, own),
        }
        row = {name: trained(start, arm, options, own).objective() for name, arm in arms.items()}
        row |= {
            f"null_{name}": trained(start, arms[name], options, own, is_deaf=True).objective()
            for name in ("method", "control")
        }
        deaf = uniform_start(start.world).objective()
        row |= {
            "extra.start": start.objective(),
            "extra.deaf": deaf,
            "extra.heard": row["method"] - deaf,
            "extra.over_even": row["method"] - row["extra.baseline"],
            "extra.at_paper": row["extra.paper"] - row["extra.paper_control"],
        }
        found.append(row)
    return found


def house(seed: int) -> World:
    """Return the rooms of each task, in which things drawn by `seed` lead on and back."""
    rng = np.random.default_rng(seed)
    num = TASKS * ROOMS
    room = np.tile(np.arange(ROOMS), TASKS)
    drawn = np.array([rng.permutation(THINGS) for _ in range(num)])
    on, back = drawn[:, 0], drawn[:, 1]
    states = np.arange(num)
    following = np.repeat(states[:, None], THINGS, 1)
    following[states, back] = np.where(room > 0, states - 1, states)
    following[states, on] = np.where(room + 1 < ROOMS, states + 1, END)
    is_success = following == END
    return World(
        tasks=tuple(Task(id=f"house/train/{k}", environment="house", seed=k) for k in range(TASKS)),
        actions=tuple(f"thing {k}" for k in range(THINGS)),
        horizon=TURNS,
        start=np.arange(0, num, ROOMS),
        next=following,
        reward=is_success.astype(np.float64),
        is_legal=np.ones((num, THINGS), np.bool_),
        is_success=is_success,
        task_of=np.repeat(np.arange(TASKS), ROOMS),
        keys=tuple(f"room {k}" for k in room),
        expert=on,
        distance=(ROOMS - room).astype(np.float64),
    )


def strategist(world: World, seed: int, *, skill: float) -> TablePolicy:
    """Return a random policy that names the thing which leads on a little more often, by `skill` in its logit."""
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    theta = 0.5 * torch.randn(world.is_legal.shape, generator=generator, dtype=torch.float64)
    theta[torch.arange(world.num_states), torch.as_tensor(world.expert)] += skill
    return TablePolicy(world, theta)


def trained(
    start: TablePolicy, method: OnPolicy, options: Mapping[str, Any], seed: int, *, is_deaf: bool = False
) -> TablePolicy:
    """Return what becomes of `start` by `method`, with an actor that listens or `is_deaf`."""
    size = int(options.get("size", 8))

    def collect(policy: TablePolicy, number: int) -> list[Group]:
        own = derive_seed("house", seed, number)
        if not is_deaf:
            return policy.sample(size=size, seed=own)
        return unheard(uniform_start(policy.world).sample(size=size, seed=own), policy, own)

    return train_table(
        start,
        method,
        num_batches=int(options.get("batches", 20)),
        size=size,
        seed=seed,
        rate=float(options.get("rate", 10.0)),
        collect=collect,
    ).policy


def unheard(groups: Sequence[Group], policy: TablePolicy, seed: int) -> list[Group]:
    """Return `groups`, episodes of an actor that goes where it likes, with names that `policy` gives in its states."""
    rng = np.random.default_rng(derive_seed("deaf", seed))
    sums, logs = policy.probabilities().numpy().cumsum(1), policy.logs().detach().numpy()
    first, names = policy.world.num_states, policy.world.actions

    def named(turn: Turn, state: int) -> Turn:
        name = min(int(np.searchsorted(sums[state], rng.random(), "right")), THINGS - 1)
        completion = replace(turn.completion, token_ids=(first + name,), logprobs=(float(logs[state, name]),))
        return replace(turn, completion=completion, action=replace(turn.action, text=names[name]))

    def changed(trajectory: Trajectory) -> Trajectory:
        turns = zip(trajectory.turns, states_of(trajectory), strict=True)
        return replace(trajectory, turns=tuple(named(turn, state) for turn, state in turns))

    return [replace(g, trajectories=tuple(map(changed, g.trajectories))) for g in groups]


def permuted(method: OnPolicy, seed: int) -> OnPolicy:
    """Return `method` whose scores are exchanged among the turns of every episode, whatever their lengths."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        return exchanged(method.credit(groups, estimates), seed)

    return replace(method, credit=credit)


def exchanged(credit: Credit, seed: int) -> Credit:
    """Return `credit` whose turns have each other's weights, each spread evenly over its own tokens."""
    places = [(i, k) for i, t in enumerate(credit.trajectories) for k in range(len(t.turns))]
    sums = [float(credit.advantages[i][k].sum()) for i, k in places]
    moved = permute(sums, [i for i, _ in places], seed=seed, moves_all=False, alone="keep").values
    new = dict(zip(places, moved, strict=True))
    advantages = tuple(
        tuple(
            np.full(len(array), new[i, k] / max(len(array), 1), np.float32) for k, array in enumerate(arrays)
        )
        for i, arrays in enumerate(credit.advantages)
    )
    return replace(credit, advantages=advantages)
