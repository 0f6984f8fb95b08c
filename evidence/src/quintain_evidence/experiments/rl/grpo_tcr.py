"""GRPO-TCR: a clip that is wider above than below finds the rare good arm in fewer updates than its mirror image.

On A16 with a decoy that is no likelier than the rest, optimizer steps until J is ½, as a logarithm, so a difference of
-.06 is 6 % fewer. The control mirrors the bounds, .72 and 1.2 for .8 and 1.28, so the width is the same; the symmetric
.8 and 1.2 is reported beside it. Reward and filter of the method are left out in all arms: the clip alone is
registered. With one epoch nothing is clipped, and the arms are the same bit by bit. The gate is about its filter: tasks
that were neither solved nor failed always have a larger share of mixed groups on later episodes than as many at random.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Any

import numpy as np

from quintain.losses.policy import clip_ratio
from quintain.methods.method import differs, same_groups
from quintain.methods.rl import grpo_tcr
from quintain.types import derive_seed
from quintain_evidence.experiments.rl.clipping import trained
from quintain_evidence.labs.tables import a16, fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy

LEVEL = 0.5
"""J that is to be reached."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of log updates until J is ½."""
    config = grpo_tcr.Config(lowest=float(options.get("lowest", 0.1)))
    whole = grpo_tcr.method(config)
    method = replace(whole, reward=same_groups, keep=same_groups)
    high, share = config.clip_high, float(options.get("share", 0.06))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("grpo_tcr", seed, number)
        start = a16(own, share=share)

        def updates(
            low: float, above: float, own: int = own, start: TablePolicy = start, **changes: Any
        ) -> float:
            run = trained(start, method, options, own, loss=clip_ratio(low, above), **changes)
            return log(run.steps_until(LEVEL))

        clip = trained(start, method, options, own)
        symmetric = updates(0.2, 0.2)
        found.append(
            {
                "method": log(clip.steps_until(LEVEL)),
                "control": updates(high, 0.2),
                "null_method": updates(0.2, high, num_epochs=1),
                "null_control": updates(high, 0.2, num_epochs=1),
                "extra.symmetric": symmetric,
                "extra.sooner_than_symmetric": symmetric - log(clip.steps_until(LEVEL)),
                "extra.clipped": clip.mean("policy/clip_fraction"),
                "extra.reached": float(clip.objective >= LEVEL),
                "extra.band": band(own, whole_keep=whole.keep, size=int(options.get("size", 8))),
            }
        )
    return found


def band(seed: int, *, whole_keep: Any, size: int) -> float:
    """Return the share of mixed groups on later episodes, of tasks in the pass-rate band less as many at random."""
    rng = np.random.default_rng(seed)
    world = s3(seed % 8, num_tasks=32)
    start = fitted_table(world, seed, until=rng.choice([0.02, 0.2, 0.5, 0.8, 0.98], 32).tolist())
    first = start.sample(size=size, seed=derive_seed(seed, "first"))
    kept = {group.task.id for group in whole_keep(first)}
    if not kept:
        return 0.0
    later = start.sample(size=size, seed=derive_seed(seed, "later"))
    mixed = {group.task.id: differs(group) for group in later}
    others = random.Random(seed).sample(sorted(mixed), len(kept))
    return float(np.mean([mixed[name] for name in kept]) - np.mean([mixed[name] for name in others]))
