"""What the clip of the ratio does when a batch is learned from more than once, at equal data and step length.

On A16, where a decoy is likely at first, a batch is gone through several times. The method clips. The control does not,
and each of its gradients is rescaled to the norm that the clipped one has on the same batch and weights, so shorter
steps explain nothing. The second control drops as many tokens as the clip does, at random. With one epoch nothing is
clipped, and all arms are the same bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.types import Batch, Loss, LossReport, Outputs, derive_seed
from quintain_evidence.labs.tables import a16
from quintain_evidence.labs.tabular import TablePolicy, TabularRun, train_table

GROUP = 8
"""Episodes that are compared with each other."""


def unclipped() -> Loss:
    """Return the surrogate r·A without bounds."""
    return clip_ratio(1.0, 1e9)


def dropped_at_random(loss: Loss, seed: int) -> Loss:
    """Return r·A without as many tokens, drawn at random, as `loss` clips, without bounds on the rest."""
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    free = unclipped()

    def changed(outputs: Outputs, batch: Batch) -> LossReport:
        share = float(loss(outputs, batch).metrics["policy/clip_fraction"])
        kept = torch.rand(batch.loss_weight.shape, generator=generator) >= share
        return free(outputs, replace(batch, loss_weight=batch.loss_weight * kept))

    return changed


def trained(
    start: TablePolicy, method: OnPolicy, options: Mapping[str, Any], seed: int, **changes: Any
) -> TabularRun:
    """Train on `batches` batches of `episodes` episodes in groups of 8, `epochs` times each."""
    settings: dict[str, Any] = {
        "num_batches": int(options.get("batches", 20)),
        "size": GROUP,
        "tasks_per_batch": int(options.get("episodes", 256)) // GROUP,
        "rate": float(options["rate"]),
        "num_epochs": int(options.get("epochs", 4)),
        "num_minibatches": 1,
        "seed": seed,
    }
    return train_table(start, method, **{**settings, **changes})


def compare(
    method: OnPolicy, single: OnPolicy, options: Mapping[str, Any], seed: int, name: str
) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of J at the end, of the loss of `method` and of the same without bounds.

    In the null world `method` has one epoch and `single` is compared with it.
    """
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed(name, seed, number)
        start = with_values(a16(own), method)
        clip = trained(start, method, options, own)
        loss = method.update.loss
        free = trained(start, method, options, own, loss=unclipped(), norm_like=loss)
        random = trained(start, method, options, own, loss=dropped_at_random(loss, own), norm_like=loss)
        found.append(
            {
                "method": clip.objective,
                "control": free.objective,
                "null_method": trained(start, method, options, own, num_epochs=1).objective,
                "null_control": trained(start, single, options, own, num_epochs=1).objective,
                "extra.random": random.objective,
                "extra.over_random": clip.objective - random.objective,
                "extra.clipped": clip.mean("policy/clip_fraction"),
                "extra.start": clip.start,
            }
        )
    return found


def with_values(start: TablePolicy, method: OnPolicy) -> TablePolicy:
    """Return `start` with a critic of zeros, where `method` reads one."""
    if not method.needs.critic:
        return start
    return TablePolicy(start.world, start.theta, torch.zeros(start.world.num_states))
