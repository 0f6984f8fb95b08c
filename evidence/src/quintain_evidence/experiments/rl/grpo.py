"""GRPO: the mean of an episode's own group is what makes the baseline good, for tasks differ.

On S3 with tasks that are 1 to 6 moves long, the cosine of the gradient with ∇J. The control gives every episode the
mean of another set of as many episodes: labels of groups are permuted over the batch. In the null world all groups
are of one task, and labels mean nothing. Nothing is divided by a deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quintain.credit_lab.permute import permute
from quintain.methods.rl import grpo
from quintain.types import Group, derive_seed, flatten_scored
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import cosine_with_exact


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    size = int(options.get("size", 16))
    start = fitted_table(
        s3(seed, distances=(1, 2, 3, 4, 5, 6)), seed, until=float(options.get("until", 0.55))
    )
    alone = fitted_table(s3(seed, num_tasks=1), seed, until=0.5)
    method = grpo.method(grpo.Config(std="none"))
    _, exact = exact_gradient(start.world, start.theta)
    _, exact_alone = exact_gradient(alone.world, alone.theta)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("grpo", seed, batch)
        groups = start.sample(size=size, seed=own)
        same = alone.sample(size=size, seed=own, tasks=[0] * len(start.world.tasks))
        found.append(
            {
                "method": cosine_with_exact(start, method, groups, exact=exact),
                "control": cosine_with_exact(start, method, relabelled(groups, own), exact=exact),
                "null_method": cosine_with_exact(alone, method, same, exact=exact_alone),
                "null_control": cosine_with_exact(alone, method, relabelled(same, own), exact=exact_alone),
                "extra.start": start.objective(),
            }
        )
    return found


def relabelled(groups: Sequence[Group], seed: int) -> list[Group]:
    """Return the same episodes dealt anew into groups of the same sizes; an episode takes the label of its group."""
    moved = permute(flatten_scored(groups), seed=seed, moves_all=False).values
    dealt: list[Group] = []
    place = 0
    for group in groups:
        own = moved[place : place + len(group.trajectories)]
        place += len(own)
        label = group.trajectories[0].group
        episodes = tuple(replace(t, task=group.task, group=label, index=i) for i, t in enumerate(own))
        dealt.append(replace(group, trajectories=episodes))
    return dealt
