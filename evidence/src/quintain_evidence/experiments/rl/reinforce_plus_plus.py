"""REINFORCE++: one deviation for the whole batch does not weigh nearly hopeless tasks up, as that of each group does.

On S3 half of the tasks are solved with probability .05 and half with .5; the number is the cosine of the gradient with
∇J, the gradient of the *mean* success. The control divides by each group's own deviation first. A second control
permutes those deviations among groups: the same weights, on other tasks. All arms are whitened over the batch alike, so
that its mean, which episodes of many turns pull down, explains nothing. In the null world all tasks are as hard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from quintain.credit.group import group_relative
from quintain.credit.whiten import whiten
from quintain.credit_lab.permute import permute
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import reinforce_plus_plus
from quintain.types import Credit, Group, derive_seed, is_constant
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, cosine_with_exact


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    low, high = float(options.get("low", 0.05)), float(options.get("high", 0.5))
    world = s3(seed)
    num = len(world.tasks)
    mixed = fitted_table(world, seed, until=[low, high] * (num // 2))
    even = fitted_table(world, seed, until=[high] * num)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("reinforce_plus_plus", seed, batch)
        method, control, other = cosines(mixed, int(options.get("size", 32)), own)
        null_method, null_control, _ = cosines(even, int(options.get("size", 32)), own)
        found.append(
            {
                "method": method,
                "control": control,
                "null_method": null_method,
                "null_control": null_control,
                "extra.permuted": other,
                "extra.over_permuted": method - other,
                "extra.start": mixed.objective(),
            }
        )
    return found


def cosines(start: TablePolicy, size: int, seed: int) -> tuple[float, float, float]:
    """Return the cosine with ∇J by the batch's deviation, by each group's, and by those of other groups."""
    plus = reinforce_plus_plus.method(
        reinforce_plus_plus.Config(tasks=len(start.world.tasks), group_size=size, kl_coef=0.0)
    )
    exact: Tensor = exact_gradient(start.world, start.theta)[1]
    groups = start.sample(size=size, seed=seed)

    def angle(credit: Callable[[Sequence[Group]], Credit]) -> float:
        arm: OnPolicy = replace(plus, credit=lambda groups, _: credit(groups))
        return cosine_with_exact(start, arm, groups, exact=exact)

    return (
        cosine_with_exact(start, plus, groups, exact=exact),
        angle(lambda groups: whiten(group_relative(groups))),
        angle(lambda groups: whiten(by_other_deviations(groups, seed))),
    )


def by_other_deviations(groups: Sequence[Group], seed: int) -> Credit:
    """Return outcomes less the mean of their group, over the deviation of another group of the batch that differs."""
    centred = group_relative(groups, std="none")
    spread = {
        g.scored[0].group: float(np.std(g.returns, ddof=1)) for g in groups if not is_constant(g.returns)
    }
    if len(spread) < 2:
        return centred
    moved = dict(zip(spread, permute(list(spread.values()), seed=seed).values, strict=True))
    advantages = tuple(
        tuple((array / moved.get(t.group, 1.0)).astype(np.float32) for array in arrays)
        for t, arrays in zip(centred.trajectories, centred.advantages, strict=True)
    )
    return replace(centred, advantages=advantages)
