"""Environment steps to a success, and stability over seeds: ArCHer beside PPO and GRPO, on tables.

    python evidence/studies/critics.py [--seeds 12] [--json FILE]

A table of logits plays S3, a small sokoban of 16 tasks, from one start a seed that solves 30 %; all arms play 16
episodes a step and see the same: the state, and not which turn it is. Rewards, targets, advantages and losses are those
that ship; critics are tables, drawn at random as value heads are, and learn by temporal differences from a buffer with
target tables. After every step success is computed exactly. The rate of Adam is PPO's best on three other seeds.

Steps to `LEVEL` are read off the line through these successes; who never came there counts with the whole budget. What
an arm takes is divided by what ArCHer takes, seed by seed: geometric means with 95 % t intervals of the logarithm.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit.turn_td import Numbers, by_way, q_targets, state_targets, way_advantages
from quintain.data.turn_values import last_turn_samples
from quintain.methods.critic import archer
from quintain.methods.rl import grpo, ppo
from quintain.types import Action, Completion, Group, Trajectory, Turn, derive_seed, flatten_scored
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, actions_of, packed, states_of, train_table
from quintain_evidence.layers.inference import estimate

START, LEVEL = 0.3, 0.6
BUDGET, EPISODES = 6_000, 16
"""Environment steps of a run; episodes of a step, one of each task."""
RATES, TUNING = (0.03, 0.1, 0.3), (1000, 1001, 1002)
CRITIC_RATE = 0.5
"""Share of the way to its target that a critic's number goes in an update."""
HEAD = 0.2
"""Deviation of what a critic says before it has learned anything."""
Curve = list[tuple[int, float]]
"""(environment steps so far, success) after every step"""


@dataclass(slots=True)
class Critic:
    """V [S] and Q [S, A] with their target tables."""

    v: NDArray[np.float64]
    q: NDArray[np.float64]
    slow_v: NDArray[np.float64]
    slow_q: NDArray[np.float64]

    @classmethod
    def drawn(cls, shape: tuple[int, ...], seed: int) -> Critic:
        """Return a critic that knows nothing."""
        rng = np.random.default_rng(seed)
        v, q = HEAD * rng.standard_normal(shape[0]), HEAD * rng.standard_normal(shape)
        return cls(v, q, v.copy(), q.copy())

    def learn(self, episodes: Sequence[Trajectory], policy: TablePolicy, config: archer.Config) -> None:
        """Take an update on `episodes`, and let the target tables follow."""
        states, actions = flat(episodes, policy)
        before = [self.slow_v[states_of(t)].tolist() for t in episodes]
        y_q = np.array([y for own in q_targets(episodes, before, config.discount) for y in own])
        odds = policy.probabilities().numpy()[states]
        y_v = np.array(state_targets([odds.tolist()], [self.slow_q[states].tolist()])[0])
        for table, places, targets in ((self.q, (states, actions), y_q), (self.v, (states,), y_v)):
            counts, sums = np.zeros(table.shape), np.zeros(table.shape)
            np.add.at(counts, places, 1.0)
            np.add.at(sums, places, targets)
            table += CRITIC_RATE * np.where(counts > 0, sums / np.maximum(counts, 1) - table, 0.0)
        self.slow_v += config.polyak * (self.v - self.slow_v)
        self.slow_q += config.polyak * (self.q - self.slow_q)


def flat(episodes: Sequence[Trajectory], policy: TablePolicy) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return state and action of every turn of `episodes`, in order."""
    states = np.concatenate([np.array(states_of(t)) for t in episodes])
    return states, np.concatenate([np.array(actions_of(t, policy.world)) for t in episodes])


def by_archer(start: TablePolicy, seed: int, rate: float, config: archer.Config) -> Curve:
    """Return the curve of ArCHer."""
    policy, update = start.copy(), archer.method(config).updates[-1].update
    applied = torch.optim.Adam([policy.theta], rate)
    critics = [Critic.drawn(tuple(policy.theta.shape), derive_seed(seed, "critic", k)) for k in (1, 2)]
    rng = np.random.default_rng(derive_seed(seed, "buffer"))
    buffer: list[Trajectory] = []
    curve: Curve = [(0, policy.objective("success"))]
    step = 0
    while curve[-1][0] < BUDGET:
        step += 1
        fresh = flatten_scored(policy.sample(size=1, seed=derive_seed(seed, "play", step)))
        buffer += fresh
        del buffer[: -config.capacity]
        for _ in range(config.critic_updates):
            for critic in critics:
                critic.learn(drawn(buffer, config.batch_size, rng), policy, config)
        for _ in range(config.actor_updates if step > config.critic_first else 0):
            episodes = drawn(buffer, config.batch_size, rng)
            states, _ = flat(episodes, policy)
            sums = policy.probabilities().numpy().cumsum(1)[states]
            actions = (rng.random(len(states))[:, None] * sums[:, -1:] >= sums).sum(1)
            q = np.minimum(critics[0].q, critics[1].q)[states, actions]
            v: Numbers = [np.minimum(critics[0].v, critics[1].v)[states_of(t)].tolist() for t in episodes]
            weights = [[[1.0]] * len(t.turns) for t in episodes]
            advantages = way_advantages(weights, by_way(weights, q.tolist()), v)
            ways = [
                replace(episodes[0], turns=(said(policy, state, action),))
                for state, action in zip(states.tolist(), actions.tolist(), strict=True)
            ]
            batch = packed(last_turn_samples(ways, advantages), update)
            applied.zero_grad()
            update.loss(policy(batch), batch).loss.backward()
            applied.step()
        played = sum(len(t.turns) for t in fresh)
        curve.append((curve[-1][0] + played, policy.objective("success")))
    return curve


def drawn(buffer: Sequence[Trajectory], size: int, rng: np.random.Generator) -> list[Trajectory]:
    """Return `size` different episodes of `buffer`, or all."""
    return [buffer[place] for place in rng.permutation(len(buffer))[:size].tolist()]


def said(policy: TablePolicy, state: int, action: int) -> Turn:
    """Return the turn that takes `action` in `state`."""
    completion = Completion(token_ids=(policy.world.num_states + action,), logprobs=(0.0,), stop="stop")
    return Turn(
        observation=(), prompt_ids=(state,), completion=completion, action=Action(), starts_segment=True
    )


def on_policy(start: TablePolicy, seed: int, rate: float, name: str) -> Curve:
    """Return the curve of PPO, with a critic in the table, or of GRPO."""
    if name == "ppo":
        method, tasks, size = ppo.method(ppo.Config(episodes=EPISODES)), len(start.world.tasks), 1
        start = TablePolicy(start.world, start.theta, torch.zeros(start.world.num_states))
    else:
        method, tasks, size = grpo.method(grpo.Config(tasks=4, group_size=4)), 4, 4
    played: list[int] = []

    def collect(policy: TablePolicy, number: int) -> list[Group]:
        own = derive_seed(seed, "play", number)
        chosen = np.random.default_rng(own).permutation(len(policy.world.tasks))[:tasks].tolist()
        groups = policy.sample(size=size, seed=own, tasks=chosen)
        played.append(sum(len(t.turns) for t in flatten_scored(groups)))
        return groups

    run = train_table(
        start,
        method,
        num_batches=BUDGET // (EPISODES * 3),
        size=size,
        seed=seed,
        rate=rate,
        optimizer=lambda parameters, rate: torch.optim.Adam(parameters, rate),
        collect=collect,
    )
    ends = np.cumsum(played).tolist()
    points = [(0, run.start), *((ends[step.batch - 1], step.objective) for step in run.steps)]
    return [point for point in points if point[0] <= BUDGET]


ARMS: dict[str, Callable[[TablePolicy, int, float], Curve]] = {
    "archer": lambda start, seed, rate: by_archer(start, seed, rate, archer.Config()),
    "archer --actor-updates 8": lambda start, seed, rate: by_archer(
        start, seed, rate, archer.Config(actor_updates=8)
    ),
    "archer --critic-first 0": lambda start, seed, rate: by_archer(
        start, seed, rate, archer.Config(critic_first=0)
    ),
    "ppo": lambda start, seed, rate: on_policy(start, seed, rate, "ppo"),
    "grpo": lambda start, seed, rate: on_policy(start, seed, rate, "grpo"),
}


def steps_to(level: float, curve: Curve) -> float | None:
    """Return after how many steps `curve` first comes to `level`, None if never; (0, .2), (100, .6) to .4 is 50."""
    for (before, low), (after, high) in pairwise(curve):
        if high >= level > low:
            return before + (after - before) * (level - low) / (high - low)
    return None


def main() -> None:
    """Run all arms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.process_time()

    def start(seed: int) -> TablePolicy:
        return fitted_table(s3(seed), seed, until=START)

    tried = {
        rate: statistics.fmean(ARMS["ppo"](start(seed), seed, rate)[-1][1] for seed in TUNING)
        for rate in RATES
    }
    rate = max(tried, key=lambda each: tried[each])
    curves = {
        name: [play(start(seed), seed, rate) for seed in range(given.seeds)] for name, play in ARMS.items()
    }
    steps = {name: [steps_to(LEVEL, curve) for curve in own] for name, own in curves.items()}
    print(f"rate {rate:g} of {tried}, {given.seeds} seeds, {time.process_time() - began:.0f} s")
    heads = f"arm | success after {BUDGET:,} steps | worst seed | lowest on the way | came to {LEVEL:.0%}"
    print(f"| {heads} | steps to it | times ArCHer's |")
    print("|---|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    for name, own in curves.items():
        end = estimate([[curve[-1][1] for curve in own]])
        took = [found or BUDGET for found in steps[name]]
        ratio = estimate(
            [[math.log(each / (of or BUDGET)) for each, of in zip(took, steps["archer"], strict=True)]]
        )
        row: dict[str, Any] = {
            "arm": name,
            "end": [end.mean, end.low, end.high],
            "worst": min(curve[-1][1] for curve in own),
            "lowest": min(value for curve in own for _, value in curve),
            "reached": sum(found is not None for found in steps[name]),
            "steps": statistics.geometric_mean(took),
            "ratio": [math.exp(value) for value in (ratio.mean, ratio.low, ratio.high)],
        }
        rows.append(row)
        of_end, of_ratio = ("{:.2f} [{:.2f}, {:.2f}]".format(*row[key]) for key in ("end", "ratio"))
        print(
            f"| `{name}` | {of_end} | {row['worst']:.2f} | {row['lowest']:.2f} | {row['reached']} of {given.seeds} | "
            f"{row['steps']:.0f} | {of_ratio} |"
        )
    if given.json:
        given.json.write_text(json.dumps({"rate": rate, "level": LEVEL, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
