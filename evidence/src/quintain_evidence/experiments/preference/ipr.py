"""IPR: do step values put the preference at the turn that decided, and not at every turn that was different?

Blocks that stay where they were stacked. The agent is the expert with three forced deviations: two detours, a
block picked up and put down, which cost two turns and nothing else, and then a stacking after which all is lost. It
fails from before each of the three turns, and outcomes alone prefer the expert's step at all of them. Steps are valued
by five episodes of an expert who errs in a tenth of its turns; pairs are made as they ship. The number is the share of
pairs at the turn of the harmful deviation. The control has the same values, permuted over the three turns. In the null
world all three deviations are detours, and there is nothing to prefer.

Beside it: the share with the margin .01 of the published scripts, that of outcomes alone, the exact values of the
scorer after right, harmless and harmful steps, and the mean variance of a value over V(1 - V)/5.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from quintain.data.pairs import Deviation, Estimate, step_pairs
from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn, derive_seed
from quintain_evidence.experiments.preference.blocks import irreversible, noisy_policy, table_of
from quintain_evidence.labs.exact import END, World, exact_values

SPEC = "plan?blocks=4&irreversible=true"
ROLLOUTS, HORIZON = 5, 16
"""Episodes of a value, and their turns."""


@dataclass(frozen=True)
class Parting:
    """An expert's way, and how the agent leaves it: ``Parting(states, actions, {0: (3, 5), 2: (7, 1), 3: (4,)})``."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    turns: Mapping[int, tuple[int, ...]]
    """turn of the expert's way → what the agent does there first; a single action decides"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications of `tasks` episodes each."""
    num, seeds = int(options.get("tasks", 25)), int(options["seeds"])
    world = replace(irreversible(num * seeds, derive_seed("ipr", seed) % 1_000_000, SPEC), horizon=HORIZON)
    rng = random.Random(seed)
    found = [part for task in range(len(world.tasks)) if (part := parting(world, task, rng))]
    scorer = noisy_policy(world, float(options.get("mistakes", 0.1)))
    exact = exact_values(world, torch.from_numpy(scorer), outcome="success").v[-1].numpy()
    size = min(num, len(found) // seeds)
    return [
        replication(world, scorer, exact, found[k * size : (k + 1) * size], options, derive_seed(seed, k))
        for k in range(seeds)
    ]


def replication(
    world: World,
    scorer: Any,
    exact: Any,
    partings: Sequence[Parting],
    options: Mapping[str, Any],
    seed: int,
) -> dict[str, float]:
    """Return the shares of some episodes."""
    margin = float(options.get("margin", 0.5))
    after = [steps(world, each) for each in partings]
    values = estimates(world, scorer, [s for each in after for pair in each for s in pair], seed)
    own = iter(values)
    valued = [[(next(own), next(own)) for _ in each] for each in after]
    rng = random.Random(seed)
    permuted = [rng.sample(each, len(each)) for each in valued]
    harmless = [detours(each) for each in partings]
    even = iter(
        estimates(world, scorer, [s for each in harmless for p in steps(world, each) for s in p], seed + 1)
    )
    null = [[(next(even), next(even)) for _ in each.turns] for each in harmless]
    mixed = [rng.sample(each, len(each)) for each in null]
    right, left = ([exact[s[side]] for each in after for s in each[:-1]] for side in (0, 1))
    drawn = [(exact[s[side]], v[side]) for each, own in zip(after, valued, strict=True)
             for s, v in zip(each, own, strict=True) for side in (0, 1)]  # fmt: skip
    spread = [v.variance / (p * (1 - p) / ROLLOUTS) for p, v in drawn if 0.1 < p < 0.9]
    return {
        "method": share(partings, valued, margin),
        "control": share(partings, permuted, margin),
        "null_method": float(count(harmless, null, margin)),
        "null_control": float(count(harmless, mixed, margin)),
        "extra.fine": share(partings, valued, 0.01),
        "extra.outcomes": share(
            partings, [[(Estimate((1.0,)), Estimate((0.0,)))] * 3] * len(partings), margin
        ),
        "extra.right": float(np.mean(right)),
        "extra.harm": float(np.mean([exact[each[-1][1]] for each in after])),
        "extra.detour": float(np.mean(right) - np.mean(left)),
        "extra.episodes": float(len(partings)),
        "extra.variance": float(np.mean(spread)) if spread else 1.0,
    }


def parting(world: World, task: int, rng: random.Random) -> Parting | None:
    """Return how the agent leaves the expert's way in `task`: two detours, then what cannot be mended; None without."""
    states, actions = way(world, int(world.start[task]))
    for turn in range(2, len(states)):
        harmful = [
            action
            for action in np.flatnonzero(world.is_legal[states[turn]]).tolist()
            if (to := world.next[states[turn], action]) != END and np.isinf(world.distance[to])
        ]
        before = [k for k in range(turn) if detour(world, states[k], actions[k], rng)]
        if harmful and len(before) >= 2:
            first, second = sorted(rng.sample(before, 2))
            turns = {k: detour(world, states[k], actions[k], rng) for k in (first, second)}
            return Parting(states, actions, {**turns, turn: (rng.choice(harmful),)})
    return None


def way(world: World, state: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the states and actions of the expert from `state`."""
    states, actions = list[int](), list[int]()
    while state != END and world.expert[state] != END and len(states) < HORIZON:
        states.append(state)
        actions.append(int(world.expert[state]))
        state = int(world.next[state, actions[-1]])
    return tuple(states), tuple(actions)


def detour(world: World, state: int, right: int, rng: random.Random) -> tuple[int, ...]:
    """Return two actions, the first not the expert's, that lead from `state` back to it; empty where there are none."""
    found = [
        (away, back)
        for away in np.flatnonzero(world.is_legal[state]).tolist()
        if away != right and (to := int(world.next[state, away])) not in (END, state)
        for back in np.flatnonzero(world.is_legal[to]).tolist()
        if world.next[to, back] == state
    ]
    return rng.choice(found) if found else ()


def detours(each: Parting) -> Parting:
    """Return `each` with nothing but its detours."""
    first, second, _ = each.turns
    turns = {first: each.turns[first], second: each.turns[second]}
    return replace(each, turns=turns)


def steps(world: World, each: Parting) -> list[tuple[int, int]]:
    """Return the states after the expert's and after the agent's action at each turn in which they part."""
    return [
        (int(world.next[each.states[k], each.actions[k]]), int(world.next[each.states[k], said[0]]))
        for k, said in each.turns.items()
    ]


def estimates(world: World, scorer: Any, states: Sequence[int], seed: int) -> list[Estimate]:
    """Return the value of each of `states` by five episodes; the end of the expert's way is worth 1."""
    at = np.array(states)
    tasks = tuple(world.tasks[int(world.task_of[max(s, 0)])] for s in states)
    begun = replace(world, start=np.maximum(at, 0), tasks=tasks, horizon=HORIZON)
    groups = table_of(begun, scorer).sample(size=ROLLOUTS, seed=derive_seed(seed, "values"))
    return [
        Estimate((1.0,) * ROLLOUTS) if state == END else Estimate(tuple(group.returns))
        for state, group in zip(states, groups, strict=True)
    ]


def deviations(each: Parting, values: Sequence[tuple[Estimate, Estimate]]) -> list[Deviation]:
    """Return the deviations of one episode, from before each of its turns; it fails where the last one decides."""
    is_lost = any(len(said) == 1 for said in each.turns.values())
    expert = episode(each.actions, 1.0, 0)
    found: list[Deviation] = []
    for (turn, _), (right, left) in zip(each.turns.items(), values, strict=True):
        said: list[int] = list(each.actions[:turn])
        for k in range(turn, len(each.actions)):
            own = each.turns.get(k, ())
            said += own
            if len(own) == 1:
                break
            said.append(each.actions[k])
        agent = episode(said, 0.0 if is_lost else 1.0, turn + 1)
        found.append(Deviation(expert=expert, agent=agent, turn=turn, expert_value=right, agent_value=left))
    return found


def episode(actions: Sequence[int], value: float, index: int) -> Trajectory:
    """Return an episode that took `actions`."""
    turns = tuple(
        Turn(
            observation=(),
            prompt_ids=(0,),
            completion=Completion(token_ids=(action + 1,), logprobs=(), stop="stop"),
            action=Action(),
        )
        for action in actions
    )
    return Trajectory(
        task=Task(id="t", environment="blocks", seed=0),
        turns=turns,
        outcome=Score(value=value, is_success=value > 0),
        stop=Stop.TERMINATED,
        seed=index,
        group="t",
        index=index,
    )


def share(
    partings: Sequence[Parting], values: Sequence[Sequence[tuple[Estimate, Estimate]]], margin: float
) -> float:
    """Return the share of step pairs that lie at the turn that decided; a third where there are none."""
    hits = total = 0
    for each, own in zip(partings, values, strict=True):
        last = max(each.turns)
        for pair in step_pairs(deviations(each, own), margin=margin):
            total += 1
            hits += max(pair.chosen.index, pair.rejected.index) == last + 1
    return hits / total if total else 1 / 3


def count(
    partings: Sequence[Parting], values: Sequence[Sequence[tuple[Estimate, Estimate]]], margin: float
) -> int:
    """Return the number of step pairs."""
    return sum(
        len(step_pairs(deviations(each, own), margin=margin))
        for each, own in zip(partings, values, strict=True)
    )
