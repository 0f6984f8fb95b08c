"""L = -Σ w_t · min(r_t A_t, clip(r_t, 1-low, 1+high) A_t), r_t = π(y_t)/π_behaviour(y_t): policy gradients.

REINFORCE; PPO (arXiv 1707.06347), with asymmetric clip (DAPO, 2503.14476) and dual clip (1912.09729); GSPO
(2507.18071) per stream or per turn; CISPO (2506.13585). How tokens are averaged was decided in `data.pack`. At π =
π_behaviour all of them have the gradient of REINFORCE, -Σ w_t A_t ∇log π. The ratio is against the log-probs at
sampling, which are never recomputed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from quintain.errors import UsageError
from quintain.losses.measure import is_trained, token_means, unit_mean, unit_sum, weighted_sum
from quintain.types import Batch, Loss, LossReport, Outputs

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""exp beyond this overflows to inf, whose gradient is NaN even where the clip makes it unused."""


def log_ratio(outputs: Outputs, batch: Batch) -> Tensor:
    """Return log π - log π_behaviour [N], limited to ±20, and 0 where nothing is trained."""
    difference = (outputs.logprobs - batch.logprobs).where(is_trained(batch), 0.0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def reinforce() -> Loss:
    """Return -Σ w_t A_t log π(y_t) (Williams 1992), which assumes on-policy data; see `log_ratio` metrics."""

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        total = -weighted_sum(batch, batch.advantages * outputs.logprobs)
        clipped_tokens = batch.loss_weight.new_zeros(batch.loss_weight.shape)
        return _report(total, outputs, batch, (log_ratio(outputs, batch), clipped_tokens))

    return loss


def clip_ratio(low: float = 0.2, high: float = 0.2, *, dual: float | None = None) -> Loss:
    """Return the clipped surrogate of PPO; high > low is DAPO's clip-higher (its paper: 0.2 and 0.28).

    `dual` c > 1 bounds the loss of a token with A < 0 by c·|A| (PPO dual clip, usually 3).
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        logs = log_ratio(outputs, batch)
        term, is_clipped = _surrogate(logs, batch.advantages, (low, high), dual)
        return _report(weighted_sum(batch, term), outputs, batch, (logs, is_clipped))

    return loss


def clip_each_ratio(low: float, highs: Sequence[float]) -> Loss:
    """Return the clipped surrogate whose upper bound is that of the episode: ``highs[i]`` of trajectory i of the step.

    What `highs` holds when a batch is trained counts, so a method may fill it anew in every step (ADPO of Agent0, arXiv
    2511.16043). Raises `UsageError` when the batch has an episode that it holds nothing of.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        numbers = batch.extra.trajectory
        if len(numbers) and int(numbers.max()) >= len(highs):
            raise UsageError(
                f"upper bounds of {int(numbers.max()) + 1} episodes: got {len(highs)}; give one for each of the step"
            )
        own = batch.advantages.new_tensor(list(highs))[numbers][batch.sequence_id]
        logs = log_ratio(outputs, batch)
        ratio = logs.exp()
        plain = -batch.advantages * ratio
        limited = -batch.advantages * ratio.clamp(min=1 - low).minimum(1 + own)
        total = weighted_sum(batch, plain.maximum(limited))
        return _report(total, outputs, batch, (logs, (limited > plain).float()))

    return loss


def gspo(
    low: float = 3e-4,
    high: float = 4e-4,
    *,
    unit: Literal["sequence", "turn"] = "sequence",
    bound_tokens: int = 0,
) -> Loss:
    """Return the clipped surrogate with one ratio per stream, or turn: the geometric mean over its tokens.

    Group sequence policy optimisation (arXiv 2507.18071) in its token form, sg[s]·π/sg[π]: the same value
    and, with one advantage per sequence, the same gradient; advantages that differ by turn keep their places.

    With `bound_tokens` L the bounds of a unit of n trained tokens are `low`·√(L/n) and `high`·√(L/n): the mean of n
    log-ratios scatters by 1/√n, so bounds that fit thousands of tokens are narrower than noise for twenty. Example:
    L 2,000, n 20, low 3e-4 → .003. With 0 they are the same for all, as published.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        tokens = log_ratio(outputs, batch)
        shared = unit_mean(tokens.detach(), batch, unit)
        logs = shared + tokens - tokens.detach()
        scale = 1.0
        if bound_tokens:
            sizes = unit_sum(batch.loss_weight.new_ones(batch.loss_weight.shape), batch, unit)
            scale = (bound_tokens / sizes.clamp(min=1)).sqrt()
        term, is_clipped = _surrogate(logs, batch.advantages, (low * scale, high * scale), None)
        return _report(weighted_sum(batch, term), outputs, batch, (logs, is_clipped))

    return loss


def whole_ratio(low: float = 0.2, high: float = 0.2) -> Loss:
    """Return the clipped surrogate with one ratio per stream: that of its probabilities, the product over its tokens.

    What PPO per token is an approximation of, and what LOOP (arXiv 2502.01600) compares it with; in token form, as
    `gspo`.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        tokens = log_ratio(outputs, batch)
        whole = unit_sum(tokens.detach(), batch).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        logs = whole + tokens - tokens.detach()
        term, is_clipped = _surrogate(logs, batch.advantages, (low, high), None)
        return _report(weighted_sum(batch, term), outputs, batch, (logs, is_clipped))

    return loss


def cispo(high: float = 0.28, *, low: float | None = None) -> Loss:
    """Return -Σ w_t sg[clip(r_t)] A_t log π(y_t): the weight is clipped, no token loses its gradient.

    Clipped importance-sampling weights (arXiv 2506.13585): r ≤ 1 + `high`, and r ≥ 1 - `low` where given.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        logs = log_ratio(outputs, batch)
        ratio = logs.detach().exp()
        weight = ratio.clamp(min=None if low is None else 1 - low, max=1 + high)
        total = -weighted_sum(batch, weight * batch.advantages * outputs.logprobs)
        return _report(total, outputs, batch, (logs, (weight != ratio).float()))

    return loss


def _surrogate(
    logs: Tensor, advantages: Tensor, bounds: tuple[float | Tensor, float | Tensor], dual: float | None
) -> tuple[Tensor, Tensor]:
    """Return the loss term and whether the clip took the gradient away, both [N]."""
    ratio = logs.exp()
    plain = -advantages * ratio
    lower: Any = 1 - bounds[0]  # both are numbers, or both one for each token
    upper: Any = 1 + bounds[1]
    limited = -advantages * ratio.clamp(lower, upper)
    term = plain.maximum(limited)
    is_clipped = limited > plain
    if dual is not None:
        bound = -advantages * dual
        is_dual = (advantages < 0) & (term > bound)
        term = bound.where(is_dual, term)
        is_clipped = is_clipped | is_dual
    return term, is_clipped.float()


def _report(total: Tensor, outputs: Outputs, batch: Batch, ratio: tuple[Tensor, Tensor]) -> LossReport:
    """Add the metrics that every policy loss has; `ratio` is the log-ratio and what was clipped, [N] each."""
    logs, is_clipped = ratio[0].detach(), ratio[1]
    terms = {
        "policy/clip_fraction": is_clipped,
        "policy/approx_kl": logs.exp() - 1 - logs,
        "policy/ratio_mean": logs.exp(),
        "policy/entropy": outputs.entropy,
    }
    return LossReport(loss=total, metrics={**token_means(batch, terms), "policy/loss": float(total.detach())})
