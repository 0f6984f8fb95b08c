"""SPA-RL: does it help to place an outcome where a predictor, which saw outcomes alone, holds its cause to be?

On S3-mid the predictor learns from episodes of earlier batches. The number is the cosine with ∇J of SPA-RL's gradient:
contributions that sum to the outcome, then an estimate over tokens by a critic that knows nothing yet. The control
permutes the rewards among the turns of each episode, so their sum and sizes stay. In the null world the predictor
learned from outcomes that were dealt to other episodes, whose turns stand in a random order: what it places means
nothing wherever it stands. What is left there is that contributions are differences of one value and cancel along an
episode, and permuted ones do not.

Beside it: the gradient of PPO, which leaves the outcome at the last turn, by the same estimate, and that of SPA-RL with
grounding as it ships, which pays for every move here, for all can be carried out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import permute_outcomes, permute_turn_rewards
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import same_groups
from quintain.methods.rl import spa_rl
from quintain.types import Group, derive_seed, flatten_scored
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, cosine_with_exact, true_advantages
from quintain_evidence.layers.inference import rank_correlation


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    size, earlier = int(options.get("size", 8)), int(options.get("earlier", 4))
    fitted = fitted_table(s3(seed), seed, until=float(options.get("until", 0.55)))
    start = TablePolicy(fitted.world, fitted.theta, torch.zeros(fitted.world.num_states))
    _, exact = exact_gradient(start.world, start.theta)
    past = [start.sample(size=size, seed=derive_seed("spa_rl", "past", seed, k)) for k in range(earlier)]
    right = learned(past)
    blind = learned([senseless(groups, derive_seed("dealt", seed)) for groups in past])
    even = spa_rl.method(spa_rl.Config())
    grounded = learned(past, grounding=spa_rl.Config().grounding)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("spa_rl", seed, batch)
        groups = start.sample(size=size, seed=own)

        def angle(method: OnPolicy, moves: bool, own: int = own, groups: Sequence[Group] = groups) -> float:
            placed = method.reward(groups)
            if moves:
                placed, _ = permute_turn_rewards(placed, seed=own)
            return cosine_with_exact(start, replace(method, reward=same_groups), placed, exact=exact)

        found.append(
            {
                "method": angle(right, False),
                "control": angle(right, True),
                "null_method": angle(blind, False),
                "null_control": angle(blind, True),
                "extra.ppo": angle(replace(right, reward=same_groups), False),
                "extra.grounded": angle(grounded, False),
                "extra.even": angle(even, False),
                "extra.rank": agreement(right, groups, start),
                "extra.null_rank": agreement(blind, groups, start),
                "extra.start": start.objective(),
            }
        )
    return found


def learned(past: Sequence[Sequence[Group]], grounding: float = 0.0) -> OnPolicy:
    """Return SPA-RL whose predictor has learned from the batches `past`, told step by step as in training."""
    method = spa_rl.method(spa_rl.Config(grounding=grounding))
    for groups in [*past, []]:
        method.state.update(groups)
    return replace(method, state=type(method.state)())


def senseless(groups: Sequence[Group], seed: int) -> list[Group]:
    """Return `groups` with outcomes of other episodes and turns in a random order: a state tells not even the time."""
    rng = random.Random(seed)
    dealt, _ = permute_outcomes(groups, seed=seed, across=True)
    return [
        replace(
            group,
            trajectories=tuple(
                replace(t, turns=tuple(rng.sample(t.turns, len(t.turns)))) for t in group.trajectories
            ),
        )
        for group in dealt
    ]


def agreement(method: OnPolicy, groups: Sequence[Group], start: TablePolicy) -> float:
    """Return Spearman's correlation of the placed rewards with what each action exactly gains or loses."""
    placed = [turn.reward for t in flatten_scored(method.reward(groups)) for turn in t.turns]
    return rank_correlation(placed, np.asarray(true_advantages(groups, start)).tolist())
