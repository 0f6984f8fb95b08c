"""L = -log sigmoid(β·Δ), Δ = (log π - log π_ref)(chosen) - (log π - log π_ref)(rejected): preferences without a reward
model.

DPO (arXiv 2305.18290) with label smoothing; IPO (2310.12036); RPO, DPO with a likelihood term (2404.19733); DMPO
(2406.14868) with weights by turn. Log-probs are *summed* over the trained tokens of all streams of a side, and losses
are means over the pairs of the step; `loss_weight` says which tokens are trained and no more. Both sides of a pair
stand in the batch; half a pair is an error, never a zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quintain.errors import DataError, InvariantError, UsageError
from quintain.losses.compose import combine
from quintain.losses.measure import is_trained, numbers, reference_of
from quintain.types import Batch, Loss, LossReport, Outputs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class _Sides:
    """Which side of which pair a stream is: slot 2·p + 1 is the chosen side of the p-th pair, 2·p the
    rejected.
    """

    slot: Tensor
    """int64 [N], the slot of each token"""
    num: int
    """pairs in this micro-batch"""

    def sums(self, terms: Tensor) -> tuple[Tensor, Tensor]:
        """Return Σ `terms` [N] over each chosen and each rejected side, [P] each."""
        both = terms.new_zeros(2 * self.num).index_add(0, self.slot, terms).view(-1, 2)
        return both[:, 1], both[:, 0]


def dpo(beta: float = 0.1, *, label_smoothing: float = 0.0) -> Loss:
    """Return (1-ε)·(-log sigmoid(βΔ)) + ε·(-log sigmoid(-βΔ)), ε = `label_smoothing` (cDPO).

    Example: log-probs -10 and -12, reference -11 and -11.5, β .1 → Δ 1.5, loss .62096. Equal to the
    reference: log 2 and accuracy 0.
    """
    _positive(beta)
    if not 0 <= label_smoothing < 0.5:
        raise UsageError(f"label smoothing: got {label_smoothing}; give a share from 0 to below 0.5")

    return _preference(dpo_value(beta, label_smoothing))


def dpo_value(beta: float, label_smoothing: float = 0.0) -> Callable[[Tensor], Tensor]:
    """Return Δ → the loss of a pair, see `dpo`."""

    def value(delta: Tensor) -> Tensor:
        kept = -log_sigmoid(beta * delta)
        return (1 - label_smoothing) * kept - label_smoothing * log_sigmoid(-beta * delta)

    return value


def ipo(beta: float = 0.1) -> Loss:
    """Return (Δ - 1/(2β))², which stops at a margin (arXiv 2310.12036), on summed log-probs. Δ 1.5, β .1 →
    12.25.
    """
    _positive(beta)
    return _preference(lambda delta: (delta - 1 / (2 * beta)).square())


def dmpo(beta: float = 0.1, *, discount: float = 0.7) -> Loss:
    """Return DPO with turn t of T weighed φ = gamma^t (1-gamma^(T-t))/(1-gamma^T), gamma = `discount` (arXiv
    2406.14868).

    T is that of each side. Example: gamma .7, T 3 → 1, .54338, .22374; gamma → 1 gives (T-t)/T.
    """
    _positive(beta)
    return _preference(lambda delta: -log_sigmoid(beta * delta), lambda batch: _turn_weights(batch, discount))


def chosen_nll() -> Loss:
    """Return the mean over pairs of the mean negative log-likelihood per token of the chosen side."""

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        sides = _sides(batch)
        mask = is_trained(batch).to(outputs.logprobs.dtype)
        total, num = sides.sums(outputs.logprobs * mask)[0], sides.sums(mask)[0]
        nll = -(total / num).sum() / batch.extra.num_pairs
        return LossReport(loss=nll, metrics={"preference/chosen_nll": float(nll.detach())})

    return loss


def rpo(beta: float = 0.1, *, alpha: float = 1.0, compares_ends: bool = True) -> Loss:
    """Return DPO + `alpha` · the chosen side's mean NLL per token (arXiv 2404.19733), never its sum.

    Without `compares_ends` the last token of each turn is imitated, not compared (Paprika, 2502.17543): it is the same
    on both sides, and pushed down where it is rejected.
    """
    _positive(beta)
    weigh = None if compares_ends else _inside_turns
    return combine((_preference(dpo_value(beta), weigh), 1.0), (chosen_nll(), alpha))


def _inside_turns(batch: Batch) -> Tensor:
    """Return 0 for the last token of each turn, else 1."""
    return (~batch.extra.turn_end).to(batch.loss_weight.dtype)


def log_sigmoid(margin: Tensor) -> Tensor:
    """Return log σ(`margin`), stable for margins of any size."""
    from torch.nn.functional import logsigmoid  # here, so that importing a loss imports no torch

    return logsigmoid(margin)


def _positive(beta: float) -> None:
    if beta <= 0:
        raise UsageError(f"beta of a preference loss: got {beta}; give a number above 0")


def _preference(
    value: Callable[[Tensor], Tensor], token_weight: Callable[[Batch], Tensor] | None = None
) -> Loss:
    """Return the mean over pairs of `value`(Δ [P])."""

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        ratio = (outputs.logprobs - reference_of(batch)).where(is_trained(batch), 0.0)
        chosen, rejected = _sides(batch).sums(ratio if token_weight is None else ratio * token_weight(batch))
        delta = chosen - rejected
        terms = {
            "preference/loss": value(delta).sum(),
            "preference/accuracy": (delta > 0).to(delta.dtype).sum(),
            "preference/margin": delta.sum(),
            "preference/chosen_log_ratio": chosen.sum(),
            "preference/rejected_log_ratio": rejected.sum(),
        }
        num = batch.extra.num_pairs
        metrics = dict(zip(terms, numbers(list(terms.values()), num), strict=True))
        return LossReport(loss=terms["preference/loss"] / num, metrics=metrics)

    return loss


def _sides(batch: Batch) -> _Sides:
    pair = batch.extra.pair
    if (pair < 0).any():
        raise DataError("streams of a preference loss: got one outside of any pair; pack pair_samples only")
    names, rank = pair.unique(return_inverse=True)
    slot = 2 * rank + batch.extra.is_chosen
    trained = slot.new_zeros(2 * len(names))
    trained = trained.index_add(0, slot[batch.sequence_id], is_trained(batch).to(slot.dtype))
    if not trained.all():
        at = int(names[int(trained.argmin()) // 2])
        raise InvariantError(f"both sides of pair {at}: got one without trained tokens; never split a pair")
    return _Sides(slot=slot[batch.sequence_id], num=len(names))


def _turn_weights(batch: Batch, discount: float) -> Tensor:
    """Return φ(t, T) [N] of each token's turn t, with T the number of turns of its side."""
    sides = _sides(batch)
    turns = batch.turn_id.new_zeros(2 * sides.num)
    num = turns.scatter_reduce(0, sides.slot, batch.turn_id + 1, "amax")[sides.slot].float()
    place = batch.turn_id.clamp(min=0).float()
    if discount == 1:
        return ((num - place) / num).to(batch.loss_weight.dtype)
    phi = discount**place * (1 - discount ** (num - place)) / (1 - discount**num)
    return phi.to(batch.loss_weight.dtype)
