"""What a grammar allowed at each token, found again for the learner, whose log-probs are then log p - log Z.

Z is the probability of all that was allowed after what was said before. An engine that samples under a grammar may give
log-probs among the allowed tokens (`Sampling.is_masked`); a completion then says under which, and what the learner
makes of it is the same number: its ratio is 1 as long as the weights are, and its gradient has the part of -log Z.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.engines.grammar import Grammars
from quintain.types import Batch, Constraint

IMPOSSIBLE = -1e30
"""The logit of what is not allowed; its probability is 0, and it is finite, so that an entropy is."""


def find_allowed(batch: Batch, targets: Tensor, grammars: Grammars) -> Tensor | None:
    """Return which tokens were allowed at each of the trained `targets` [M]: bits, uint8 [M, V / 8 rounded up].

    Where nothing was constrained all are; None where nothing was in the whole `batch`.

    Raises:
        UsageError: a grammar is of text, and there is no tokenizer.
        InvariantError: what was said is not what its grammar allows.
    """
    if not batch.extra.constraints:
        return None
    places = targets.cpu().numpy()
    found = np.full((len(places), -(-grammars.vocabulary // 8)), 255, np.uint8)
    ids, turns = batch.token_ids.cpu().numpy(), batch.turn_id.cpu().numpy()
    streams = batch.sequence_id.cpu().numpy()
    for start, constraint in batch.extra.constraints:
        is_own = (turns[start:] == turns[start]) & (streams[start:] == streams[start])
        end = start + (int(np.argmin(is_own)) if not is_own.all() else len(is_own))
        row = int(np.searchsorted(places, start))
        if row < len(places) and places[row] == start:
            found[row : row + end - start] = follow(grammars, constraint, ids[start:end])
    return torch.from_numpy(found).to(targets.device)


def follow(grammars: Grammars, constraint: Constraint, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return what was allowed at each of `ids`, which a completion under `constraint` says, as bits [tokens, V / 8]."""
    guide = grammars.begin(constraint.grammar, constraint.stop_ids)
    masks = np.zeros((len(ids), grammars.vocabulary), np.bool_)
    for mask, token in zip(masks, ids.tolist(), strict=True):
        allowed = guide.allow_tokens()[: len(mask)]
        mask[: len(allowed)] = allowed
        guide.take(token)
    return np.packbits(masks, axis=1, bitorder="little")


def mask_logits(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Return `logits` [M, V]; where a token is not `allowed` (bits [M, V / 8]), one so low that it cannot be."""
    if allowed is None:
        return logits
    bits = allowed[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=allowed.device)
    return logits.masked_fill((bits & 1).flatten(1)[:, : logits.shape[1]] == 0, IMPOSSIBLE)
