"""What losses log: means over the trained tokens of the whole step, moved off the device in one go.

A metric of a micro-batch is its sum over trained tokens divided by the tokens of the *step*, so that the metrics of
micro-batches add up. A token with loss weight 0 is never counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from quintain.errors import UsageError
from quintain.types import Batch

if TYPE_CHECKING:
    from torch import Tensor


def is_trained(batch: Batch) -> Tensor:
    """Return bool [N]: whether the token has loss weight."""
    return batch.loss_weight > 0


def weighted_sum(batch: Batch, term: Tensor) -> Tensor:
    """Return Σ loss_weight · `term` [N] over trained tokens; a NaN elsewhere does not leak in."""
    return (batch.loss_weight * term.where(is_trained(batch), 0.0)).sum()


def token_means(batch: Batch, terms: Mapping[str, Tensor]) -> dict[str, float]:
    """Return for each name Σ `terms` [N] over trained tokens / trained tokens of the step."""
    mask = is_trained(batch)
    sums = [term.detach().where(mask, 0.0).float().sum() for term in terms.values()]
    return dict(zip(terms, numbers(sums, batch.extra.num_trained), strict=True))


def numbers(sums: Sequence[Tensor], num: int) -> list[float]:
    """Return the scalars `sums`, each divided by `num`, moved off their device in one transfer."""
    import torch  # here, so that a method's configuration can be read without torch; tensors have no method for it

    return (torch.stack([total.detach() for total in sums]) / num).cpu().numpy().tolist()


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
    return unit_sum(values, batch, unit) / unit_sum(values.new_ones(values.shape), batch, unit).clamp(min=1)
