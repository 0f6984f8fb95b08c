"""Lite PPO: the deviation of the batch does not blow up groups that nearly agree, as that of each group does.

On S3 one task of eight is solved half the time and the others nearly always, and every outcome is judged with a jitter
of a thousandth: a group that was solved throughout differs by nothing but the jitter. The number is the cosine of the
gradient with ∇J. The control divides by each group's own deviation, on the same outcomes: the mean of the group, the
loss and the average over tokens are the same. A second control divides by the deviations of other groups. In the null
world there is no jitter: groups that agree have no advantage in either arm. Beside it, tasks that are all solved half
the time, with the jitter: no group nearly agrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from quintain.methods.rl import lite_ppo
from quintain.types import Group, Score, derive_seed, is_constant
from quintain_evidence.experiments.rl.reinforce_plus_plus import by_other_deviations
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, cosine_with_exact


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    size, jitter = int(options.get("size", 8)), float(options.get("jitter", 1e-3))
    sure = float(options.get("sure", 0.999))
    world = s3(seed)
    num = len(world.tasks)
    near = fitted_table(world, seed, until=[0.5, *[sure] * 7] * (num // 8))
    even = fitted_table(world, seed, until=[0.5] * num)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("lite_ppo", seed, batch)
        plain = near.sample(size=size, seed=own)
        method, control, permuted = cosines(near, jittered(plain, jitter, own), own)
        null_method, null_control, _ = cosines(near, plain, own)
        even_method, even_control, _ = cosines(
            even, jittered(even.sample(size=size, seed=own), jitter, own), own
        )
        found.append(
            {
                "method": method,
                "control": control,
                "null_method": null_method,
                "null_control": null_control,
                "extra.permuted": permuted,
                "extra.even": even_method - even_control,
                "extra.alike": float(np.mean([is_constant(group.returns) for group in plain])),
                "extra.start": near.objective(),
            }
        )
    return found


def cosines(start: TablePolicy, groups: Sequence[Group], seed: int) -> tuple[float, float, float]:
    """Return the cosine with ∇J by the deviation of the batch, of each group, and of other groups."""
    _, exact = exact_gradient(start.world, start.theta)
    whole, own = (lite_ppo.method(lite_ppo.Config(std=std)) for std in ("batch", "group"))
    other = replace(whole, credit=lambda given, _: by_other_deviations(given, seed))
    found = [cosine_with_exact(start, arm, groups, exact=exact) for arm in (whole, own, other)]
    return found[0], found[1], found[2]


def jittered(groups: Sequence[Group], scale: float, seed: int) -> list[Group]:
    """Return `groups` whose outcomes a judge told with an error of standard deviation `scale`."""
    rng = np.random.default_rng(seed)
    return [
        replace(
            group,
            trajectories=tuple(
                replace(t, outcome=replace(score, value=score.value + scale * float(rng.normal())))
                for t in group.trajectories
                for score in (cast(Score, t.outcome),)
            ),
        )
        for group in groups
    ]
