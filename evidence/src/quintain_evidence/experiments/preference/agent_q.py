"""Agent Q: do outcomes and a critic's ranks, mixed, order the ways on from a state better than with the ranks permuted?

Blocks that stay where they were stacked, an expert who errs in three of ten turns, and trees of 16 episodes as they
ship, grown once for all arms by a critic who cannot tell. What each way on is worth, Q^π with the turns that are left,
is known exactly and judges alone. The critic knows that, too, with noise of its own: as much as makes it order
siblings rightly as often as the outcomes do, so that neither source is the better one and their errors have nothing to
do with each other. The number is the share of pairs of visited siblings that Q orders as Q^π does, equal ones a half.
The control has the same ranks, permuted among siblings. In the null world the critic cannot tell, and Q orders as the
outcomes do.

Beside it: each source alone, Q with α .8, the difference from the control among the half of all pairs that Q puts
furthest apart (the number of pairs is fixed, and with it what a margin would keep), the spread of Q^π over siblings,
and the states.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.search.tree import GuidedTree, Node, Seen, ranks
from quintain.types import derive_seed
from quintain_evidence.experiments.preference.blocks import HORIZON, irreversible, noisy_policy
from quintain_evidence.labs.exact import END, World, exact_values

LEAST = 0.02
"""Difference of exact values above which one of two ways is the better one."""
STEPS = 30
"""Halvings by which the critic's noise is found."""


@dataclass(frozen=True, eq=False)
class Family:
    """Visited siblings: what outcomes say of them, and what they are worth exactly."""

    means: NDArray[np.float64]
    exact: NDArray[np.float64]
    noise: NDArray[np.float64]
    """the critic's, of deviation 1"""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of which one is better, that one first."""
        found = [
            (i, j) if self.exact[i] > self.exact[j] else (j, i)
            for i, j in combinations(range(len(self.exact)), 2)
        ]
        return [(i, j) for i, j in found if self.exact[i] - self.exact[j] > LEAST]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications of `tasks` trees each."""
    num, seeds = int(options.get("tasks", 40)), int(options["seeds"])
    world = irreversible(num * seeds, derive_seed("agent_q", seed) % 1_000_000)
    policy = noisy_policy(world, float(options.get("mistakes", 0.3)))
    exact = exact_values(world, torch.from_numpy(policy), outcome="success").q.numpy()
    return [
        replication(world, policy, exact, range(k * num, (k + 1) * num), options, derive_seed(seed, k))
        for k in range(seeds)
    ]


def replication(
    world: World,
    policy: NDArray[np.float64],
    exact: NDArray[np.float64],
    tasks: Sequence[int],
    options: Mapping[str, Any],
    seed: int,
) -> dict[str, float]:
    """Return the shares of the trees of some tasks."""
    rng = np.random.default_rng(seed % (1 << 63))
    sums = policy.cumsum(1)
    trees = [grown(world, sums, int(world.start[task]), options, rng) for task in tasks]
    families = [known(family, exact, rng) for tree in trees for family in tree.families()]
    families = [family for family in families if family.pairs]
    outcomes = [family.means for family in families]
    search = share(families, outcomes)
    noise = matched(families, search)
    told = [np.array(ranks((f.exact + noise * f.noise).tolist())) for f in families]
    mixed = random.Random(seed)
    permuted = [np.array(mixed.sample(own.tolist(), len(own))) for own in told]
    alike = [np.array(ranks([0.0] * len(f.means))) for f in families]
    alpha = float(options.get("mixing", 0.5))

    def mix(by: Sequence[NDArray[np.float64]], mixing: float = alpha) -> list[NDArray[np.float64]]:
        return [q(f.means, own, mixing) for f, own in zip(families, by, strict=True)]

    method, control, critic = (
        share(families, mix(told)),
        share(families, mix(permuted)),
        share(families, told),
    )
    return {
        "method": method,
        "control": control,
        "null_method": share(families, mix(alike)),
        "null_control": search,
        "extra.search": search,
        "extra.critic": critic,
        "extra.over_search": method - search,
        "extra.over_critic": method - critic,
        "extra.matched": abs(critic - search),
        "extra.widest": widest(families, mix(told)) - widest(families, mix(permuted)),
        "extra.heavier": share(families, mix(told, 0.8)),
        "extra.stakes": float(np.mean([f.exact.std() for f in families])),
        "extra.nodes": float(len(families)),
    }


def grown(
    world: World, sums: NDArray[np.float64], state: int, options: Mapping[str, Any], rng: np.random.Generator
) -> GuidedTree:
    """Return the tree of a task whose first state is `state`, for a policy whose probabilities add up to `sums`."""
    tree = GuidedTree(Seen(key=-1, text="", place=state), exploration=float(options.get("exploration", 1.0)))
    for _ in range(int(options.get("episodes", 16))):
        leaf = tree.select()
        if not leaf.seen.is_over:
            drawn = [acted(sums, leaf.seen.place, rng) for _ in range(int(options.get("branches", 8)))]
            tree.expand(leaf, [after(world, leaf, action) for action in drawn], [0.0] * len(drawn))
        node = tree.select()
        tree.tell(node, ended(world, sums, node, rng))
    return tree


def acted(sums: NDArray[np.float64], state: int, rng: np.random.Generator) -> int:
    """Return an action of the policy in `state`."""
    return int((rng.random() * sums[state, -1] >= sums[state]).sum())


def after(world: World, node: Node, action: int) -> Seen:
    """Return the state after `action` at `node`."""
    state = int(world.next[node.seen.place, action])
    return Seen(
        key=action,
        text="",
        is_over=state == END or node.depth + 1 == HORIZON,
        is_solved=state == END and bool(world.is_success[node.seen.place, action]),
        place=state,
    )


def ended(world: World, sums: NDArray[np.float64], node: Node, rng: np.random.Generator) -> float:
    """Return whether an episode of the policy from `node` solves the task."""
    if node.seen.is_over:
        return float(node.seen.is_solved)
    state = node.seen.place
    for _ in range(HORIZON - node.depth):
        action = acted(sums, state, rng)
        is_solved, state = bool(world.is_success[state, action]), int(world.next[state, action])
        if state == END:
            return float(is_solved)
    return 0.0


def known(family: Sequence[Node], exact: NDArray[np.float64], rng: np.random.Generator) -> Family:
    """Return what is known of siblings."""
    above = family[0].parent
    assert above is not None, "siblings have a parent"
    values = exact[HORIZON - above.depth, above.seen.place]
    return Family(
        means=np.array([child.value for child in family]),
        exact=np.array([values[child.seen.key] for child in family]),
        noise=rng.normal(size=len(family)),
    )


def q(means: NDArray[np.float64], by: NDArray[np.float64], mixing: float) -> NDArray[np.float64]:
    """Return Q of siblings with mean outcomes `means` and ranks `by`, as the tree mixes them."""
    tree = GuidedTree(Seen(key=-1, text=""), mixing=mixing)
    return np.array(
        [
            tree.worth(Node(seen=tree.root.seen, value=float(mean), rank=float(rank)))
            for mean, rank in zip(means, by, strict=True)
        ]
    )


def order(family: Family, values: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Return for each pair of `family` how far apart `values` put it, and whether rightly: 1, 0, or a half if equal."""
    gaps = [float(values[better] - values[worse]) for better, worse in family.pairs]
    return [(abs(gap), 0.5 + 0.5 * (gap > 1e-9) - 0.5 * (gap < -1e-9)) for gap in gaps]


def share(families: Sequence[Family], values: Sequence[NDArray[np.float64]]) -> float:
    """Return the share of pairs that `values` order as the exact values do."""
    found = [is_right for f, own in zip(families, values, strict=True) for _, is_right in order(f, own)]
    return float(np.mean(found))


def widest(families: Sequence[Family], values: Sequence[NDArray[np.float64]]) -> float:
    """Return the same of the half of the pairs that `values` put furthest apart."""
    found = [each for f, own in zip(families, values, strict=True) for each in order(f, own)]
    kept = sorted(found, key=lambda each: -each[0])[: max(1, len(found) // 2)]
    return float(np.mean([is_right for _, is_right in kept]))


def matched(families: Sequence[Family], wanted: float) -> float:
    """Return the noise with which the critic orders the share `wanted` of pairs rightly."""

    def reached(noise: float) -> float:
        return share(families, [f.exact + noise * f.noise for f in families])

    return halved(reached, wanted, 0.0, 10.0)


def halved(falling: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Return where between `low` and `high` a `falling` function is `wanted`."""
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > wanted else (low, middle)
    return low
