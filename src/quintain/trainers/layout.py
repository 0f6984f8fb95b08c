"""How a packed batch is laid out for the forward pass: shared prompts once, logits only where there is a loss.

Streams that open with the same prompt (the members of a group) share its tokens: they are computed once and
attended to by every member, and their gradients add up by themselves. The one rule: outputs and gradients
equal those of the plain batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quintain.models.packed import Plan, Stream, plan
from quintain.types import Batch

MIN_SHARED = 8
"""Prompts shorter than this are not worth a row of their own."""


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


def layout(batch: Batch, *, share: bool = True) -> Layout:
    """Return the layout of `batch`; with `share`, equal prompts are computed once."""
    device = batch.token_ids.device
    is_trained = batch.turn_id >= 0
    targets = is_trained.nonzero().squeeze(1)
    starts = _starts(batch.lengths)
    prompts = _prompt_lengths(is_trained.cpu(), batch.lengths)
    shared = _shared(batch.token_ids.tolist(), starts, prompts) if share else {}
    if not shared:
        streams = [Stream(start, length) for start, length in zip(starts, batch.lengths, strict=True)]
        attention = plan(streams, device=device)
        return Layout(batch.token_ids, batch.position_ids, attention, targets, targets - 1)
    keep, streams = _deduplicated(starts, batch.lengths, shared)
    place = _places(sum(batch.lengths), starts, shared, keep).to(device)
    keep = keep.to(device)
    return Layout(
        batch.token_ids.index_select(0, keep),
        batch.position_ids.index_select(0, keep),
        plan(streams, device=device),
        targets,
        place.index_select(0, targets - 1),
    )


def _starts(lengths: tuple[int, ...]) -> list[int]:
    """Return where each stream starts."""
    return [0, *torch.tensor(lengths).cumsum(0).tolist()[:-1]]


def _prompt_lengths(is_trained: Tensor, lengths: tuple[int, ...]) -> list[int]:
    """Return the number of tokens before the first trained one, for each stream."""
    counts: list[int] = []
    for stream in is_trained.split(list(lengths)):
        hits = stream.nonzero()
        counts.append(int(hits[0]) if len(hits) else len(stream))
    return counts


def _shared(ids: list[int], starts: list[int], prompts: list[int]) -> dict[int, tuple[int, int]]:
    """Return {stream: (stream that owns its prompt, prompt length)} for streams whose prompt occurs again."""
    owners: dict[tuple[int, ...], list[int]] = {}
    for stream, (start, length) in enumerate(zip(starts, prompts, strict=True)):
        if length >= MIN_SHARED:
            owners.setdefault(tuple(ids[start : start + length]), []).append(stream)
    return {
        stream: (members[0], len(prompt))
        for prompt, members in owners.items()
        if len(members) > 1
        for stream in members
    }


def _deduplicated(
    starts: list[int], lengths: tuple[int, ...], shared: dict[int, tuple[int, int]]
) -> tuple[Tensor, list[Stream]]:
    """Return the kept tokens' places in the batch, and the streams in the coordinates of the kept tokens."""
    kept: list[Tensor] = []
    streams: list[Stream] = []
    prefixes: dict[int, int] = {}
    offset = 0
    for stream, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        owner, prompt = shared.get(stream, (stream, 0))
        if prompt and owner == stream:
            prefixes[stream] = offset
            kept.append(torch.arange(start, start + prompt))
            streams.append(Stream(offset, prompt))
            offset += prompt
        rest = length - prompt
        if rest:
            kept.append(torch.arange(start + prompt, start + length))
            streams.append(Stream(offset, rest, prefixes.get(owner, 0), prompt))
            offset += rest
    return torch.cat(kept), streams


def _places(total: int, starts: list[int], shared: dict[int, tuple[int, int]], keep: Tensor) -> Tensor:
    """Return, for each token of the batch, the computed token that stands for it."""
    place = torch.full((total,), -1)
    place[keep] = torch.arange(len(keep))
    for stream, (owner, prompt) in shared.items():
        if owner != stream:
            mine, other = starts[stream], starts[owner]
            place[mine : mine + prompt] = place[other : other + prompt]
    return place
