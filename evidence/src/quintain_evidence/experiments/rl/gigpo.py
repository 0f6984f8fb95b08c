"""GiGPO: does comparing returns in equal states find the better action, and is it the equal state that does it?

On S3-mid the correlation of the step credit A_S with the exact advantage of the policy, over all steps of a batch. The
control permutes the state keys among the steps of each group: as many sets of the same sizes, of steps that have
nothing in common. Both arms discount alike. In the null world every step has a key of its own, where A_S is 0. A start
of success .4 to .7 is part of the claim: near a random policy the sign reverses.

The rival is GRPO, which credits all steps of an episode alike: its correlation beside that of GiGPO's whole credit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.credit_lab.permute import permute_state_keys
from quintain.methods.rl import gigpo
from quintain.types import Group, derive_seed
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import (
    assign,
    cosine,
    loss_gradient,
    per_turn,
    true_advantages,
)

DOSES = (4, 8, 32)
"""Episodes of a group."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table: correlations with A^π, and the effect at each size of a group."""
    size = int(options.get("size", 8))
    start = fitted_table(s3(seed), seed, until=float(options.get("until", 0.55)))
    _, exact = exact_gradient(start.world, start.theta)
    step = gigpo.method(gigpo.Config())
    plain = gigpo.method(gigpo.Config(step_weight=0.0))

    def steps(groups: Sequence[Group]) -> NDArray[np.float64]:
        return per_turn(assign(start, step, groups)) - per_turn(assign(start, plain, groups))

    def angle(groups: Sequence[Group]) -> float:
        return cosine(loss_gradient(start, assign(start, step, groups), step.update), exact)

    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("gigpo", seed, batch)
        row: dict[str, float] = {"extra.start": start.objective()}
        for dose in (*DOSES, size) if size not in DOSES else DOSES:
            groups = start.sample(size=dose, seed=derive_seed(own, dose))
            permuted, moved = permute_state_keys(groups, seed=own)
            truth = true_advantages(groups, start)
            right, wrong = correlation(steps(groups), truth), correlation(steps(permuted), truth)
            if dose in DOSES:
                row[f"extra.dose{dose}"] = right - wrong
            if dose == size:
                unique = own_keys(groups)
                row |= {
                    "method": right,
                    "control": wrong,
                    "null_method": correlation(steps(unique), truth),
                    "null_control": correlation(steps(permute_state_keys(unique, seed=own)[0]), truth),
                    "extra.whole": correlation(per_turn(assign(start, step, groups)), truth),
                    "extra.grpo": correlation(per_turn(assign(start, plain, groups)), truth),
                    "extra.cosine": angle(groups) - angle(permuted),
                    "extra.unchanged": moved.share_unchanged,
                }
        found.append(row)
    return found


def own_keys(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` whose every step has a state key of its own."""
    return [
        replace(
            group,
            trajectories=tuple(
                replace(
                    t,
                    turns=tuple(
                        replace(turn, state_key=f"{turn.state_key}/{t.index}/{k}")
                        for k, turn in enumerate(t.turns)
                    ),
                )
                for t in group.trajectories
            ),
        )
        for group in groups
    ]


def correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return Pearson's correlation; 0 where one of them does not vary."""
    spread = one.std() * other.std()
    return float(((one - one.mean()) * (other - other.mean())).mean() / spread) if spread > 1e-12 else 0.0
