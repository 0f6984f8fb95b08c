"""What losses log: means over the trained tokens of the whole step, moved off the device in one go.

A metric of a micro-batch is its sum over trained tokens divided by the tokens of the *step*, so that the
metrics of micro-batches add up.
The one rule: a token with loss weight 0 is never counted.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from quintain.errors import UsageError
from quintain.types import Batch


def is_trained(batch: Batch) -> Tensor:
    """Return bool [N]: whether the token has loss weight."""
    return batch.loss_weight > 0


def weighted_sum(batch: Batch, term: Tensor) -> Tensor:
    """Return Σ loss_weight · `term` [N] over trained tokens; a NaN elsewhere does not leak in."""
    return (batch.loss_weight * torch.where(is_trained(batch), term, 0.0)).sum()


def token_means(batch: Batch, terms: Mapping[str, Tensor]) -> dict[str, float]:
    """Return for each name Σ `terms` [N] over trained tokens / trained tokens of the step."""
    mask = is_trained(batch)
    sums = torch.stack(
        [torch.where(mask, term.detach(), 0.0).sum(dtype=torch.float32) for term in terms.values()]
    )
    return dict(zip(terms, (sums / batch.extra.num_trained).cpu().numpy().tolist(), strict=True))


def reference_of(batch: Batch) -> Tensor:
    """Return the reference policy's log-probs [N]; raises `UsageError` when the batch carries none."""
    if batch.extra.reference_logprobs is None:
        raise UsageError("log-probs of the reference policy: got none; give the learner a reference model")
    return batch.extra.reference_logprobs


def unit_sum(values: Tensor, batch: Batch, unit: Literal["sequence", "turn"] = "sequence") -> Tensor:
    """Return the sum of `values` over the trained tokens of each stream or turn, at each of its tokens."""
    index, num = batch.sequence_id, len(batch.lengths)
    if unit == "turn":
        num_turns = int(batch.turn_id.max()) + 2
        index, num = index * num_turns + batch.turn_id + 1, num * num_turns
    return values.new_zeros(num).index_add(0, index, values * is_trained(batch).to(values.dtype))[index]


def unit_mean(values: Tensor, batch: Batch, unit: Literal["sequence", "turn"]) -> Tensor:
    """Return the mean of `values` over the trained tokens of each stream or turn, at each of its tokens."""
    return unit_sum(values, batch, unit) / unit_sum(torch.ones_like(values), batch, unit).clamp(min=1)
