"""How a packed batch is laid out for the forward pass: shared tokens once, logits only where there is a loss.

Streams that begin alike (the members of a group share the prompt, and often the first turns) form a tree: what they
share is computed once and attended to by all that continue it, and their gradients add up by themselves. Outputs and
gradients equal those of the plain batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.models.context import Context
from quintain.models.packed import Plan, Stream, plan, plan_rank
from quintain.types import Batch

GRAIN = 8
"""Streams part at multiples of this many tokens (or at their ends): shorter pieces cost more than they save."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A batch ready for the forward pass: N' computed tokens of the batch's N."""

    token_ids: Tensor
    """int64 [N']"""
    position_ids: Tensor
    """int64 [N']"""
    attention: Plan
    targets: Tensor
    """int64 [M], tokens of the batch that are trained"""
    predictors: Tensor
    """int64 [M], computed token whose hidden state predicts each target"""


def layout(batch: Batch, *, share: bool = True, context: Context | None = None) -> Layout:
    """Return the layout of `batch`; with `share`, what streams have in common at their beginnings is computed once.

    With a `context`, it is that of this rank's part of the tokens.
    """
    device = batch.token_ids.device
    targets = (batch.turn_id >= 0).nonzero().squeeze(1)
    ends = np.cumsum(batch.lengths)
    starts: list[int] = (ends - batch.lengths).tolist()
    rows = np.split(batch.token_ids.cpu().numpy(), ends[:-1])
    order = (
        sorted(range(len(rows)), key=lambda row: (rows[row].astype(">u4").tobytes(), row)) if share else []
    )
    common = [_in_common(rows[one], rows[other]) for one, other in pairwise(order)]
    if not any(common):
        streams = [Stream(start, length) for start, length in zip(starts, batch.lengths, strict=True)]
        return _lay_out(batch.token_ids, batch.position_ids, streams, targets, targets - 1, context)
    keep, place, streams = _tree(
        [starts[row] for row in order], [batch.lengths[row] for row in order], common
    )
    kept = torch.from_numpy(keep).to(device)
    return _lay_out(
        batch.token_ids.index_select(0, kept),
        batch.position_ids.index_select(0, kept),
        streams,
        targets,
        torch.from_numpy(place).to(device).index_select(0, targets - 1),
        context,
    )


def _lay_out(
    token_ids: Tensor, position_ids: Tensor, streams: Sequence[Stream], targets: Tensor, predictors: Tensor,
    context: Context | None,
) -> Layout:  # fmt: skip
    """Return the layout of these tokens, or of this rank's part of them."""
    device = token_ids.device
    if context is None:
        return Layout(token_ids, position_ids, plan(streams, device=device), targets, predictors)
    start, end = context.bounds(len(token_ids))[context.rank : context.rank + 2]
    is_own = (predictors >= start) & (predictors < end)
    attention = plan_rank(streams, context, len(token_ids), device=device)
    return Layout(
        token_ids[start:end], position_ids[start:end], attention, targets[is_own], predictors[is_own] - start
    )


def _in_common(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Return how many tokens two neighbours in the order share: up to a multiple of `GRAIN`, or one whole stream."""
    shorter = min(len(one), len(other))
    different = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(different[0]) // GRAIN * GRAIN if len(different) else shorter


def _tree(
    starts: Sequence[int], lengths: Sequence[int], common: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Stream]]:
    """Return what is computed of streams in lexicographic order, neighbours sharing their first `common` tokens.

    Returns:
        For each computed token its place in the batch; for each token of the batch the computed token that stands
        for it; the streams in the coordinates of computed tokens.
    """
    place = np.empty(sum(lengths), np.int64)
    keep: list[NDArray[np.int64]] = []
    streams: list[Stream] = []
    path: list[tuple[int, int]] = []
    """(start, length) in computed tokens of what the next stream continues"""
    offset = 0
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        shared = common[row - 1] if row else 0
        while sum(size for _, size in path) > shared:
            path.pop()
        place[start : start + shared] = place[starts[row - 1] : starts[row - 1] + shared]
        place[start + shared : start + length] = np.arange(offset, offset + length - shared)
        keep.append(np.arange(start + shared, start + length))
        for first, last in pairwise([shared, *_partings(common[row:], shared, length)]):
            streams.append(Stream(offset, last - first, tuple(path)))
            path.append((offset, last - first))
            offset += last - first
    return np.concatenate(keep), place, streams


def _partings(common: Sequence[int], shared: int, length: int) -> list[int]:
    """Return where streams to come part from one of `length` tokens, after its first `shared`, and its end."""
    found = {length} if length > shared else set[int]()
    for part in common:
        length = min(length, part)
        if length <= shared:
            break
        found.add(length)
    return sorted(found)
