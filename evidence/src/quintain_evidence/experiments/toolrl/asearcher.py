"""ASearcher: does weighing each token by how far the policy has moved since it was sampled mend stale data?

A table that has taken some exact steps learns from episodes that it sampled before them. The number is the cosine of
decoupled PPO's gradient with the exact one of the policy as it is now. The control permutes the weights over the tokens
of the batch; another arm is coupled PPO, whose clipped ratio is to the sampler. In the null world the policy has not
moved, where all are the same bit by bit. Printed: the same in episodes of eight turns, where a token's weight says
nothing of how likely its state has become, and the effective sample size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.toolrl import asearcher
from quintain.types import Batch, Credit, Loss, LossReport, Outputs, derive_seed
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, assign, cosine, kept_samples, loss_gradient, packed

DOSES = (0, 2, 4, 8)
"""Steps that the policy has taken since."""
LONG = 8
"""Turns of the longer episodes."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table, each with the cosines of all arms after 0, 2, 4 and 8 steps."""
    method = asearcher.method(asearcher.Config())
    short = stale(options, seed, horizon=1)
    long = stale(options, seed, horizon=LONG)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("asearcher", seed, batch)
        rows = {dose: cosines(method, short, dose, options, own) for dose in DOSES}
        far = cosines(method, long, DOSES[-1], options, own)
        last = rows[DOSES[-1]]
        found.append(
            {
                "method": last["decoupled"],
                "control": last["permuted"],
                "null_method": rows[0]["decoupled"],
                "null_control": rows[0]["permuted"],
                **{
                    f"extra.dose{dose}": rows[dose]["decoupled"] - rows[dose]["permuted"]
                    for dose in DOSES[1:]
                },
                "extra.over_coupled": last["decoupled"] - last["coupled"],
                "extra.effective": last["effective"],
                "extra.objective": last["objective"],
                "extra.long": far["decoupled"] - far["permuted"],
                "extra.long_over_coupled": far["decoupled"] - far["coupled"],
            }
        )
    return found


def stale(options: Mapping[str, Any], seed: int, *, horizon: int) -> list[TablePolicy]:
    """Return the table of `seed`, and as it is after each of the steps that it takes along the exact gradient."""
    world = s3(seed, horizon=horizon, distances=tuple(range(1, min(horizon, 4) + 1)))
    tables = [fitted_table(world, seed, until=float(options["until"]))]
    for _ in range(DOSES[-1]):
        _, gradient = exact_gradient(world, tables[-1].theta)
        step = float(options["step"]) * gradient / gradient.norm()
        tables.append(TablePolicy(world, tables[-1].theta.detach() + step))
    return tables


def cosines(
    method: OnPolicy, tables: Sequence[TablePolicy], dose: int, options: Mapping[str, Any], seed: int
) -> dict[str, float]:
    """Return the cosine of each arm's gradient with the exact one, on episodes of the first table."""
    now = tables[dose]
    groups = tables[0].sample(size=int(options["size"]), seed=seed)
    credit = assign(now, method, groups)
    _, exact = exact_gradient(now.world, now.theta)

    def angle(loss: Loss) -> float:
        return cosine(loss_gradient(now, credit, method.update, loss=loss, reference=now), exact)

    loss = method.update.loss
    return {
        "decoupled": angle(loss),
        "permuted": angle(permuted(loss, seed) if dose else loss),
        "coupled": angle(clip_ratio(options["clip"], options["clip"])),
        "effective": effective(method, credit, now),
        "objective": now.objective(),
    }


def permuted(loss: Loss, seed: int) -> Loss:
    """Return `loss` with its weights dealt out anew among the trained tokens of a batch."""
    generator = torch.Generator().manual_seed(seed % (1 << 63))

    def changed(outputs: Outputs, batch: Batch) -> LossReport:
        start = asearcher.proximal(batch)
        trained = (batch.loss_weight > 0).nonzero().squeeze(1)
        moved = start - batch.logprobs
        dealt = moved.index_put((trained,), moved[trained[torch.randperm(len(trained), generator=generator)]])
        return loss(outputs, replace(batch, logprobs=start - dealt))

    return changed


def effective(method: OnPolicy, credit: Credit, now: TablePolicy) -> float:
    """Return (Σ w)² / (n · Σ w²), the share of the trained tokens that the weighted ones are worth."""
    batch = packed(kept_samples(credit, method.update), method.update, now)
    trained = batch.loss_weight > 0
    ratios = (asearcher.proximal(batch) - batch.logprobs)[trained].exp()
    weights = ratios.where(ratios <= asearcher.Config().cap, 0.0)
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))
