"""L = -log sigmoid(β·Δ), Δ = (log π - log π_ref)(chosen) - (log π - log π_ref)(rejected): preferences without a reward
model.

DPO (arXiv 2305.18290) with label smoothing; hinge (SLiC-HF, 2305.10425); IPO (2310.12036); RPO, DPO with a likelihood
term (2404.19733); DMPO (2406.14868) with weights by turn; KTO (2402.01306), which takes sides one by one. ORPO
(2403.07691) and SimPO (2405.14734) have no reference and are there to compare with. What was observed has no weight, so
over episodes of many turns DPO is M-DPO and KTO is M-KTO (2409.02392): the world's own part of Δ cancels.

Log-probs are *summed* over the trained tokens of all streams of a side, except where a loss says it takes their mean,
and losses are means over the pairs of the step; `loss_weight` says which tokens are trained and no more. Both sides of
a pair stand in the batch; half a pair is an error, never a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quintain.errors import DataError, InvariantError, UsageError
from quintain.losses.measure import is_trained, numbers, reference_of, unit_sum
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

    def shares(self, batch: Batch) -> Tensor:
        """Return 1 / (trained tokens of its side) for each trained token [N], 0 elsewhere."""
        mask = is_trained(batch).to(batch.loss_weight.dtype)
        counts = mask.new_zeros(2 * self.num).index_add(0, self.slot, mask)
        return mask / counts[self.slot]


Value = Callable[["Tensor"], "Tensor"]
"""Δ [P] → the loss of each pair [P]"""


def dpo(
    beta: float = 0.1,
    *,
    label_smoothing: float = 0.0,
    by_length: bool = False,
    by_turn: bool = False,
    compares_ends: bool = True,
) -> Loss:
    """Return (1-ε)·(-log sigmoid(βΔ)) + ε·(-log sigmoid(-βΔ)), ε = `label_smoothing` (cDPO).

    With `by_length` Δ is a difference of means over the tokens of a side; β is then some ten times larger. With
    `by_turn` it is one of sums over turns, each the mean over its tokens: advantages of turns (SWEET-RL, arXiv
    2503.15478). Log-ratios .1 and .3 in one turn, .5 in the next: .9, .3 `by_length`, .7 `by_turn`. Without
    `compares_ends` the last token of each turn does not count: it is the same on both sides, and pushed down where it
    is rejected.

    Example: log-probs -10 and -12, reference -11 and -11.5, β .1 → Δ 1.5, loss .62096. Equal to the
    reference: log 2 and accuracy 0.
    """
    _positive(beta)
    if not 0 <= label_smoothing < 0.5:
        raise UsageError(f"label smoothing: got {label_smoothing}; give a share from 0 to below 0.5")
    if by_length and by_turn:
        raise UsageError("log-ratios of a side: got by_length and by_turn; give one of the two")
    weigh = _weights(by_length=by_length, compares_ends=compares_ends, by_turn=by_turn)
    return _preference(dpo_value(beta, label_smoothing), weigh)


def dpo_value(beta: float, label_smoothing: float = 0.0) -> Value:
    """Return Δ → the loss of a pair, see `dpo`."""

    def value(delta: Tensor) -> Tensor:
        kept = -log_sigmoid(beta * delta)
        return (1 - label_smoothing) * kept - label_smoothing * log_sigmoid(-beta * delta)

    return value


def reference_from_logprobs(loss: Loss) -> Loss:
    """Return `loss` with log-probs at sampling as those of the reference (Agent Q, arXiv 2408.07199).

    No other policy is kept. What was sampled by the policy as it was when the updates began has the same loss as with
    a frozen copy of it; what was sampled earlier stays tied to whoever sampled it. Both sides must have been sampled:
    demonstrations have no log-probs.
    """

    def compute(outputs: Outputs, batch: Batch) -> LossReport:
        return loss(outputs, replace(batch, extra=replace(batch.extra, reference_logprobs=batch.logprobs)))

    return compute


def hinge(beta: float = 0.1, *, by_length: bool = False, compares_ends: bool = True) -> Loss:
    """Return max(0, 1 - βΔ), which has no gradient beyond its margin (SLiC-HF, arXiv 2305.10425). Δ 1.5, β .1 → .85."""
    _positive(beta)
    weigh = _weights(by_length=by_length, compares_ends=compares_ends)
    return _preference(lambda delta: (1 - beta * delta).clamp(min=0), weigh)


def ipo(beta: float = 0.1, *, by_length: bool = False, compares_ends: bool = True) -> Loss:
    """Return (Δ - 1/(2β))², which stops at a margin (arXiv 2310.12036), on summed log-probs. Δ 1.5, β .1 →
    12.25.

    With `by_length` on mean log-probs, as TRL has it.
    """
    _positive(beta)
    weigh = _weights(by_length=by_length, compares_ends=compares_ends)
    return _preference(lambda delta: (delta - 1 / (2 * beta)).square(), weigh)


def dmpo(beta: float = 0.1, *, discount: float = 0.7, compares_ends: bool = True) -> Loss:
    """Return DPO with turn t of T weighed φ = gamma^t (1-gamma^(T-t))/(1-gamma^T), gamma = `discount` (arXiv
    2406.14868).

    T is that of each side. Example: gamma .7, T 3 → 1, .54338, .22374; gamma → 1 gives (T-t)/T. The end of a turn has
    the weight of its turn; in the published code separators keep 1.
    """
    _positive(beta)
    ends = _weights(by_length=False, compares_ends=compares_ends)
    return _preference(
        dpo_value(beta), lambda batch, sides: _turn_weights(batch, sides, discount) * ends(batch, sides)
    )


def simpo(beta: float = 2.0, *, margin: float = 0.5) -> Loss:
    """Return -log sigmoid(βΔ - `margin`), Δ the difference of mean log-probs, without a reference (arXiv 2405.14734).

    Example: means -2 and -6, β 2, margin .5 → βΔ - margin 7.5, loss .00055293.
    """
    _positive(beta)
    weigh = _weights(by_length=True, compares_ends=True)
    return _preference(lambda delta: -log_sigmoid(beta * delta - margin), weigh, has_reference=False)


def orpo(weight: float = 0.1) -> Loss:
    """Return the chosen side's mean NLL + `weight` · (-log sigmoid of the log odds ratio) (arXiv 2403.07691, eq. 6).

    The odds of a side are p/(1-p) with p = exp of its mean log-prob; there is no reference. The likelihood is that of
    what was sampled; in the published code the prompt's counts, too.

    Example: means -2 and -6 → log odds ratio 4.14293, -log sigmoid .01575, loss 2 + .1 · .01575.
    """
    _positive(weight)

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        sides = _sides(batch)
        logs = outputs.logprobs.where(is_trained(batch), 0.0)
        chosen, rejected = sides.sums(logs * sides.shares(batch))
        values = -log_sigmoid(_log_odds(chosen) - _log_odds(rejected))
        return _report(values, chosen - rejected, {"logprob": (chosen, rejected)}, batch)

    return with_likelihood(loss, weight, nll_of_chosen(), 1.0)


def _log_odds(log_prob: Tensor) -> Tensor:
    """Return log(p / (1 - p)) of `log_prob` = log p, stable for p near 1."""
    import torch  # here, so that importing a loss imports no torch

    return log_prob - torch.log(-torch.expm1(log_prob))


def nll_of_chosen(*, is_summed: bool = False) -> Loss:
    """Return the mean over pairs of the chosen side's negative log-likelihood: its mean per token, or its sum.

    The code of IPR, PGPO and STeCa adds the sum to DPO, which outweighs the pairs as many times as a side has tokens.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        sides = _sides(batch)
        mask = is_trained(batch).to(outputs.logprobs.dtype)
        weight = mask if is_summed else sides.shares(batch).to(mask.dtype)
        nll = -sides.sums(outputs.logprobs.where(is_trained(batch), 0.0) * weight)[0].sum()
        nll = nll / batch.extra.num_pairs
        return LossReport(loss=nll, metrics={"preference/chosen_nll": float(nll.detach())})

    return loss


def rpo(
    beta: float = 0.1, *, alpha: float = 1.0, is_summed: bool = False, compares_ends: bool = True
) -> Loss:
    """Return DPO + `alpha` · the chosen side's mean NLL per token (arXiv 2404.19733), or with `is_summed` its sum.

    Without `compares_ends` the last token of each turn is imitated, not compared (Paprika, 2502.17543).

    ``preference/pair_gradient`` and ``preference/nll_gradient`` are Σ |∂/∂ log-prob| of the two terms, each with its
    coefficient: which of them teaches. In the example of `dpo`, with 5 chosen and 2 rejected tokens: .32380 against 1,
    and against 5 where the likelihood is summed.
    """
    _positive(beta)
    return with_likelihood(
        dpo(beta, compares_ends=compares_ends), 1.0, nll_of_chosen(is_summed=is_summed), alpha
    )


def kto(
    beta: float = 0.1, *, desirable: float = 1.0, undesirable: float = 1.0, compares_ends: bool = True
) -> Loss:
    """Return λ_y - v: v = λ_D σ(β(u - z)) of a desirable, λ_U σ(β(z - u)) of an undesirable episode (arXiv 2402.01306).

    u is the episode's summed log-ratio, z ≥ 0 the batch's KL estimate, without gradient: take `Update(has_kl=True)`.
    Episodes are told apart by `Batch.extra.is_chosen` and need no partner. The mean is by loss weight: with
    `Update(aggregation="sequence_mean")` every episode counts alike. λ_D = `desirable`, λ_U = `undesirable`.
    Log-ratios that are reported are means over all episodes, to which those of the other label add 0.

    Example: z .2, β .1 → .4800107 of a desirable episode with u 1; .4825071 of an undesirable one with u -.5.
    """
    _positive(beta)
    if min(desirable, undesirable) < 0:
        raise UsageError(f"weights of KTO: got {desirable} and {undesirable}; give 0 or more")

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        if batch.extra.kl is None:
            raise UsageError("KL estimate of the batch: got none; set has_kl in the update")
        names, owner = batch.extra.trajectory.unique(return_inverse=True)
        by_token = owner[batch.sequence_id]

        def total(terms: Tensor) -> Tensor:
            return terms.new_zeros(len(names)).index_add(0, by_token, terms)

        ratio = (outputs.logprobs - reference_of(batch)).where(is_trained(batch), 0.0)
        episode = total(ratio if compares_ends else ratio * _inside_turns(batch))
        is_good = batch.extra.is_chosen.new_zeros(len(names)).index_put((owner,), batch.extra.is_chosen)
        away = (episode - max(batch.extra.kl, 0.0)) * (2.0 * is_good - 1.0)
        scale = is_good * desirable + ~is_good * undesirable
        share = total(batch.loss_weight.to(episode.dtype))
        terms = {
            "preference/loss": share * scale * (-beta * away).sigmoid(),
            "preference/accuracy": share * (away > 0),
            "preference/chosen_log_ratio": (share * episode).where(is_good, 0.0),
            "preference/rejected_log_ratio": (share * episode).where(~is_good, 0.0),
        }
        sums = [each.sum() for each in terms.values()]
        metrics = dict(zip(terms, numbers(sums, 1), strict=True))
        metrics["preference/kl"] = max(batch.extra.kl, 0.0) * float(share.sum())
        return LossReport(loss=sums[0], metrics=metrics)

    return loss


def with_likelihood(pairs: Loss, pair_weight: float, nll: Loss, nll_weight: float) -> Loss:
    """Return the weighted sum of the two, which reports how strongly each pulls at the log-probs."""

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        total, metrics = outputs.logprobs.new_zeros(()), dict[str, float]()
        for name, part, weight in (("pair", pairs, pair_weight), ("nll", nll, nll_weight)):
            report = part(outputs, batch)
            total = total + weight * report.loss
            metrics |= report.metrics
            if outputs.logprobs.requires_grad:
                metrics[f"preference/{name}_gradient"] = _pull(weight * report.loss, outputs.logprobs)
        return LossReport(loss=total, metrics=metrics)

    return loss


def _pull(loss: Tensor, logprobs: Tensor) -> float:
    """Return Σ |∂ `loss` / ∂ `logprobs`|, which adds up over micro-batches."""
    import torch  # here, so that importing a loss imports no torch

    (slopes,) = torch.autograd.grad(loss, logprobs, retain_graph=True)
    return float(slopes.abs().sum())


Weigh = Callable[[Batch, _Sides], "Tensor"]
"""(batch, sides) → the factor of each token's log-ratio [N]"""


def _weights(*, by_length: bool, compares_ends: bool, by_turn: bool = False) -> Weigh:
    """Return the weights 1, or 1 / (tokens of the side, of the turn), and 0 at ends of turns that are not compared."""

    def weigh(batch: Batch, sides: _Sides) -> Tensor:
        ones = batch.loss_weight.new_ones(batch.loss_weight.shape)
        found = sides.shares(batch) if by_length else ones
        if by_turn:
            found = ones / unit_sum(ones, batch, "turn").clamp(min=1)
        return found if compares_ends else found * _inside_turns(batch)

    return weigh


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


def _preference(value: Value, weigh: Weigh, *, has_reference: bool = True) -> Loss:
    """Return the mean over pairs of `value`(Δ [P]), of log-ratios to the reference or of log-probs."""

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        sides = _sides(batch)
        logs = outputs.logprobs - reference_of(batch) if has_reference else outputs.logprobs
        logs = logs.where(is_trained(batch), 0.0)
        chosen, rejected = sides.sums(logs * weigh(batch, sides))
        measured = (
            {"log_ratio": sides.sums(logs.detach())} if has_reference else {"logprob": (chosen, rejected)}
        )
        return _report(value(chosen - rejected), chosen - rejected, measured, batch)

    return loss


def _report(
    values: Tensor, delta: Tensor, measured: Mapping[str, tuple[Tensor, Tensor]], batch: Batch
) -> LossReport:
    """Return the mean of `values` [P] over the pairs of the step; `measured` of the chosen and the rejected sides [P].

    Log-ratios are sums over all trained tokens, whatever the loss compares: nats since the reference.
    """
    terms = {
        "preference/loss": values.sum(),
        "preference/accuracy": (delta > 0).to(delta.dtype).sum(),
        "preference/margin": delta.sum(),
        **{f"preference/chosen_{name}": chosen.sum() for name, (chosen, _) in measured.items()},
        **{f"preference/rejected_{name}": rejected.sum() for name, (_, rejected) in measured.items()},
    }
    num = batch.extra.num_pairs
    metrics = dict(zip(terms, numbers(list(terms.values()), num), strict=True))
    return LossReport(loss=terms["preference/loss"] / num, metrics=metrics)


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


def _turn_weights(batch: Batch, sides: _Sides, discount: float) -> Tensor:
    """Return φ(t, T) [N] of each token's turn t, with T the number of turns of its side."""
    turns = batch.turn_id.new_zeros(2 * sides.num)
    num = turns.scatter_reduce(0, sides.slot, batch.turn_id + 1, "amax")[sides.slot].float()
    place = batch.turn_id.clamp(min=0).float()
    if discount == 1:
        return ((num - place) / num).to(batch.loss_weight.dtype)
    phi = discount**place * (1 - discount ** (num - place)) / (1 - discount**num)
    return phi.to(batch.loss_weight.dtype)
