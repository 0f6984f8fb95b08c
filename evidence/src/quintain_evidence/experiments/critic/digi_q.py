"""Digi-Q: does the best of N turns by a Q from a log go the right way, because of that Q?

A table that solves a third plays a log on S3; twin critics learn from two halves of it by TD. At every state of the log
whose recorded action does not come nearer to the goal, where another action would, the recorded action and others that
the table says anew are candidates; the best by the smaller Q is extracted where it beats the state by the threshold.
Measured is the share of what is extracted that comes nearer. The control has the same numbers permuted over the
candidates of each state, so that as much is extracted. In the null world all candidates are the recorded action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.credit.turn_td import best_ways
from quintain.types import derive_seed, flatten_scored
from quintain_evidence.experiments.critic.archer import TableCritic, places
from quintain_evidence.labs.exact import END, World, exact_values
from quintain_evidence.labs.tables import fitted_table, s3

DOSES = (1, 2, 4, 16)
"""Candidates of a state, the recorded action included."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` logs of one table: shares of extracted actions that come nearer to the goal."""
    world = s3(seed)
    policy = fitted_table(world, seed, until=float(options.get("until", 0.3)))
    discount, threshold = float(options.get("discount", 0.95)), float(options.get("threshold", 0.05))
    exact = exact_values(world, policy.probabilities(), discount=discount).q.numpy()
    good = nearer(world)
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("digi_q", seed, number)
        episodes = flatten_scored(policy.sample(size=int(options.get("size", 16)), seed=own))
        critics = [TableCritic.learned(policy, episodes[half::2], discount) for half in (0, 1)]
        turns, states, actions = places(episodes, policy)
        is_asked = ~good[states, actions] & good[states].any(1)
        turns, states, actions = turns[is_asked], states[is_asked], actions[is_asked]
        rng = np.random.default_rng(derive_seed(own, "candidates"))
        sums = policy.probabilities().numpy().cumsum(1)[states]
        fresh = (rng.random((len(states), max(DOSES) - 1, 1)) * sums[:, None, -1:] >= sums[:, None]).sum(2)
        said = np.concatenate([actions[:, None], fresh], 1)
        q = {name: choose([c.after(turns, states) for c in critics], 0) for name, choose in COMBINE.items()}
        v = np.minimum(*(c.v[turns, states] for c in critics))
        share = partial(share_nearer, good[states], q["min"], v, threshold, rng)
        copies = np.repeat(actions[:, None], max(DOSES), 1)
        seen = np.stack([c.is_seen[turns, states, actions] for c in critics]).all(0)
        truth = exact[world.horizon - turns, states, actions]
        over = {name: float((q[name][np.arange(len(states)), actions] - truth)[seen].mean()) for name in q}
        found.append(
            {
                "method": share(said),
                "control": share(said, is_permuted=True),
                "null_method": share(copies),
                "null_control": share(copies, is_permuted=True),
                "extra.states": float(len(states)),
                "extra.start": policy.objective(),
                "extra.optimism": over["max"] - over["min"],
                **{
                    f"extra.dose{n}": share(said[:, :n]) - share(said[:, :n], is_permuted=True) for n in DOSES
                },
            }
        )
    return found


def share_nearer(
    good: NDArray[np.bool_],
    q: NDArray[np.float64],
    v: NDArray[np.float64],
    threshold: float,
    rng: np.random.Generator,
    candidates: NDArray[np.int64],
    *,
    is_permuted: bool = False,
) -> float:
    """Return the share of what is extracted of `candidates` [states, N] that is `good` [states, A]; 0 of nothing.

    With `is_permuted` the candidates of each state have each other's `q`.
    """
    after = np.take_along_axis(q, candidates, 1)
    if is_permuted:
        after = rng.permuted(after, axis=1)
    best = best_ways([after.tolist()], [v.tolist()], threshold)
    kept = [good[row, candidates[row, place]] for row, (place, weight) in enumerate(best) if weight]
    return float(np.mean(kept)) if kept else 0.0


COMBINE = {"min": np.min, "max": np.max}


def nearer(world: World) -> NDArray[np.bool_]:
    """Return whether an action solves the task or leads to a state that is nearer to the goal, [S, A]."""
    beyond = np.where(world.next == END, np.inf, world.distance[world.next.clip(min=0)])
    return world.is_success | (beyond < world.distance[:, None])
