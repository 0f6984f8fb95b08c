"""RRO: does drawing until a step rises keep better steps than drawing as often without looking?

Blocks that stay where they were stacked, and an expert who does anything legal at a share of turns. From states on its
way five steps are drawn, in an order, each valued by five episodes; what they have to rise above is the mean of five
episodes from the state. Where drawing stops, and which step is then followed, is what ships. The number is the exact
advantage Q - V of the step that is followed. The control stops as often after one, two, … draws, and has as often found
that the last one rose, in states that are drawn: the same steps and values. In the null world every action leads where
the expert's does: some steps rise, by luck.

Beside it: the sd of Q over the actions of a state, the number by thirds of it, the gap of the pairs in exact values,
and the advantage of the best of always five draws.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.methods.preference.rro import choose_followed, has_risen, num_drawn
from quintain.types import derive_seed, flatten_scored
from quintain_evidence.experiments.preference.blocks import SPEC, irreversible, noisy_policy, table_of
from quintain_evidence.labs.exact import END, World, exact_values
from quintain_evidence.labs.tabular import states_of

RATES = (0.3, 0.4, 0.5)
"""Shares of turns in which the expert errs, one after the other."""


@dataclass(frozen=True, eq=False)
class Draws:
    """What was drawn in some states."""

    states: NDArray[np.int64]
    """[N]"""
    before: NDArray[np.float64]
    """[N] what the step that led there was worth, by rollouts"""
    actions: NDArray[np.int64]
    """[N, cap] steps in the order of drawing"""
    values: NDArray[np.float64]
    """[N, cap] what each is worth, by rollouts"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each in tasks of its own."""
    return [
        replication(options, RATES[number % len(RATES)], derive_seed(seed, number))
        for number in range(int(options["seeds"]))
    ]


def replication(options: Mapping[str, Any], rate: float, seed: int) -> dict[str, float]:
    """Return the advantages of what is followed in the states of some tasks."""
    world = irreversible(int(options.get("tasks", 32)), derive_seed("rro", seed) % 1_000_000, SPEC)
    found = compared(world, rate, options, seed)
    same = compared(alike(world), rate, options, seed)
    return {**found, **{f"null_{name}": same[name] for name in ("method", "control")}}


def compared(world: World, rate: float, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return the mean exact advantage of what the rule and its control follow."""
    cap, rollouts = int(options.get("cap", 5)), int(options.get("rollouts", 5))
    policy = noisy_policy(world, rate)
    exact = exact_values(world, torch.from_numpy(policy), outcome="success")
    q, v = exact.q[-1].numpy(), exact.v[-1].numpy()
    drawn = draw(world, policy, int(options.get("states", 500)), cap, rollouts, seed)
    advantage = q[drawn.states[:, None], drawn.actions] - v[drawn.states][:, None]
    stops = [rule(list(own), before) for own, before in zip(drawn.values, drawn.before, strict=True)]
    others = random.Random(seed).sample(stops, len(stops))
    rows = range(len(stops))
    own = np.array([advantage[n, kept(drawn.values[n], *stops[n])] for n in rows])
    other = np.array([advantage[n, kept(drawn.values[n], *others[n])] for n in rows])
    spread = np.array([float(np.std(q[s][world.is_legal[s]])) for s in drawn.states])
    thirds = np.array_split(np.argsort(spread, kind="stable"), 3)
    doses = [float((own - other)[third].mean()) for third in thirds]
    gaps = [
        [ends(advantage[n], drawn.values[n], num) for n, (num, _) in enumerate(given)]
        for given in (stops, others)
    ]
    return {
        "method": float(own.mean()),
        "control": float(other.mean()),
        "extra.stakes": float(spread.mean()),
        "extra.low": doses[0],
        "extra.middle": doses[1],
        "extra.high": doses[2],
        "extra.dose": doses[2] - doses[0],
        "extra.drawn": float(np.mean([num for num, _ in stops])),
        "extra.gap": float(np.mean(gaps[0]) - np.mean(gaps[1])),
        "extra.five": float(np.mean([advantage[n, int(drawn.values[n].argmax())] for n in rows])),
    }


def draw(world: World, policy: NDArray[np.float64], count: int, cap: int, rollouts: int, seed: int) -> Draws:
    """Return what `policy` draws in `count` of the states on its way from where the task can be solved or lost."""
    rng = np.random.default_rng(seed % (1 << 63))
    table = table_of(world, policy)
    episodes = flatten_scored(table.sample(size=8, seed=derive_seed(seed, "visited")))
    visited = [
        s for t in episodes for s in states_of(t) if np.isfinite(world.distance[s])
    ]  # fmt: skip
    states = np.array(visited)[rng.permutation(len(visited))[:count]]
    chances = policy[states]
    actions = np.stack(
        [rng.choice(chances.shape[1], size=cap, p=own / own.sum()) for own in chances]
    )  # fmt: skip
    after = world.next[states[:, None], actions]
    paid = world.success[states[:, None], actions]
    asked = np.concatenate([states, np.maximum(after, 0).ravel()])
    means = worths(world, policy, asked, rollouts, derive_seed(seed, "worth"))
    values = np.where(after == END, paid, means[len(states) :].reshape(after.shape))
    return Draws(states, means[: len(states)], actions, values)


def worths(
    world: World, policy: NDArray[np.float64], states: NDArray[np.int64], rollouts: int, seed: int
) -> NDArray[np.float64]:
    """Return the mean success of `rollouts` episodes from each of `states`."""
    tasks = tuple(world.tasks[int(world.task_of[s])] for s in states)
    groups = table_of(replace(world, start=states, tasks=tasks), policy).sample(size=rollouts, seed=seed)
    return np.array([fmean(float(t.is_success) for t in group.trajectories) for group in groups], np.float64)


def rule(values: Sequence[float], before: float) -> tuple[int, bool]:
    """Return after how many draws RRO stops, and whether the last of them rose."""
    num = num_drawn(values, before)
    return num, has_risen(values[:num], before)


def kept(values: NDArray[np.float64], num: int, rose: bool) -> int:
    """Return the place of what is followed where `num` were drawn and the last rose, or none did."""
    drawn = [float(value) for value in values[:num]]
    return choose_followed(drawn, -np.inf if rose else np.inf)


def ends(advantage: NDArray[np.float64], values: NDArray[np.float64], num: int) -> float:
    """Return by how much the best of the first `num` draws is truly above the worst of them."""
    return float(advantage[int(values[:num].argmax())] - advantage[int(values[:num].argmin())])


def alike(world: World) -> World:
    """Return `world` with every action doing what the expert's does, or the first legal one where it has none."""
    best = np.where(world.expert != END, world.expert, world.is_legal.argmax(1))[:, None]

    def of_best(table: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(np.take_along_axis(table, best, 1), table.shape).copy()

    return replace(
        world, next=of_best(world.next), reward=of_best(world.reward), is_success=of_best(world.is_success)
    )
