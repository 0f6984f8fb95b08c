"""StarPO-S: of equally many groups, those whose outcomes differ most tell most of what to do.

On S3 a quarter of the tasks are solved half the time and the others nearly always or hardly ever. The number is the
cosine with ∇J of the gradient of StarPO-S, which keeps the quarter of the groups with the widest outcomes. The control
keeps as many groups at random; penalty, bi-level estimate, whitening and loss are the same. The critic is exact but for
the turns that are left. In the null world all tasks are solved half the time by groups so large that their widths are
all but equal, and a choice by width is a choice at random.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from quintain.methods.method import same_groups
from quintain.methods.rl import starpo
from quintain.types import Group, derive_seed, flatten_scored
from quintain_evidence.labs.exact import exact_gradient, exact_values, visits
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, cosine_with_exact

SHARE = 0.25
"""Share of the groups that is kept."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    size, large = int(options.get("size", 8)), int(options.get("null_size", 64))
    low, high = float(options.get("low", 0.04)), float(options.get("high", 0.96))
    world = s3(seed)
    num = len(world.tasks)
    mixed = knowing(fitted_table(world, seed, until=[0.5, low, high, high] * (num // 4)))
    even = knowing(fitted_table(world, seed, until=[0.5] * num))
    method = starpo.method(starpo.Config(keep=SHARE))
    whole = replace(method, keep=same_groups)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("starpo", seed, batch)
        row: dict[str, float] = {"extra.start": mixed.objective()}
        for start, count, prefix in ((mixed, size, ""), (even, large, "null_")):
            _, exact = exact_gradient(start.world, start.theta)
            groups = start.sample(size=count, seed=own)
            chosen = random.Random(own).sample(groups, len(method.keep(method.reward(groups))))
            row[f"{prefix}method"] = cosine_with_exact(start, method, groups, exact=exact)
            row[f"{prefix}control"] = cosine_with_exact(start, whole, chosen, exact=exact)
            if not prefix:
                row["extra.all"] = cosine_with_exact(start, whole, groups, exact=exact)
                row["extra.lost"] = row["extra.all"] - row["method"]
                row["extra.tokens"] = trained_tokens(method.keep(groups)) / trained_tokens(groups)
        found.append(row)
    return found


def knowing(start: TablePolicy) -> TablePolicy:
    """Return `start` with a critic: the exact value of each state, averaged over the turns that are left there."""
    often = visits(start.world, start.probabilities())[1:]
    exact = exact_values(start.world, start.probabilities()).v[1:]
    values = (often * exact).sum(0) / often.sum(0).clamp(min=1e-12)
    return TablePolicy(start.world, start.theta, torch.where(often.sum(0) > 0, values, exact[-1]))


def trained_tokens(groups: Sequence[Group]) -> int:
    """Return the sampled tokens of the scored episodes of `groups`."""
    return sum(t.num_sampled for t in flatten_scored(groups))
