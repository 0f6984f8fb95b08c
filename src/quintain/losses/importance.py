"""w_t ← w_t · min(r_t, cap), w_t · r_t·[r_t ≤ cap] or w_t · [low ≤ r_t ≤ high]: data that another policy sampled.

r_t = π_learner(y_t)/π_sampler(y_t), without gradient: engines round differently and weights go stale. Truncated
importance sampling (TIS, Yao et al. 2025; Espeholt et al., arXiv 1802.01561), dropped beyond the cap (AReaL,
2505.24298), masked (IcePop, MIS). With `proximal`, the learner's log-probs at the start of the step: the ratio above is
of those, and the inner loss has its own ratio against them (decoupled PPO, arXiv 2505.24298). Without `proximal` the
inner loss must have no ratio of its own (`reinforce`), or it counts twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from quintain.losses.measure import token_means, unit_mean
from quintain.losses.policy import log_ratio
from quintain.types import Batch, Loss, LossReport, Outputs

if TYPE_CHECKING:
    from torch import Tensor

Proximal = Callable[[Batch], "Tensor"]
Beyond = Literal["truncate", "drop"]
"""What becomes of a token whose ratio is beyond the cap: it has the cap for a weight, or none."""


def truncate_weights(log_ratios: Tensor, *, cap: float, beyond: Beyond = "truncate") -> Tensor:
    """Return w(r_t) for each token [N], without gradient; log r_t = log π_learner(y_t) - log π_sampler(y_t).

    w is min(r_t, `cap`); with `beyond` drop it is r_t, and 0 where r_t > `cap`. Example: log-probs -1 of the learner
    and -1 - ln 3 at sampling have the ratio 3, which a cap of 2 makes 2, or 0 where it is dropped.
    """
    ratios = log_ratios.detach().exp()
    return ratios.clamp(max=cap) if beyond == "truncate" else ratios.where(ratios <= cap, 0.0)


def truncate_importance(
    loss: Loss, *, cap: float = 2.0, beyond: Beyond = "truncate", proximal: Proximal | None = None
) -> Loss:
    """Return `loss` with each token weighed as `truncate_weights` says; logs the mean weight and the share capped.

    Nothing is renormalised: what is dropped shortens the step.
    """

    def correct(outputs: Outputs, batch: Batch) -> LossReport:
        logs = _logs(outputs, batch, proximal)
        terms = {
            "importance/weight": truncate_weights(logs, cap=cap, beyond=beyond),
            "importance/capped_fraction": (logs.exp() > cap).float(),
        }
        return _apply(loss, (outputs, batch), proximal, terms)

    return correct


def mask_importance(
    loss: Loss,
    *,
    low: float = 0.5,
    high: float = 5.0,
    unit: Literal["token", "turn", "sequence"] = "token",
    proximal: Proximal | None = None,
) -> Loss:
    """Return `loss` without the units whose r (a geometric mean over turn or stream) leaves [`low`, `high`].

    Weights of the others stay: nothing is renormalised, so masking shortens the step.
    """

    def correct(outputs: Outputs, batch: Batch) -> LossReport:
        logs = _logs(outputs, batch, proximal)
        ratio = (logs if unit == "token" else unit_mean(logs, batch, unit)).exp()
        keep = ((ratio >= low) & (ratio <= high)).float()
        return _apply(
            loss,
            (outputs, batch),
            proximal,
            {"importance/weight": keep, "importance/masked_fraction": 1 - keep},
        )

    return correct


def _logs(outputs: Outputs, batch: Batch, proximal: Proximal | None) -> Tensor:
    learner = outputs.logprobs if proximal is None else proximal(batch)
    return log_ratio(replace(outputs, logprobs=learner.detach()), batch)


def _apply(
    loss: Loss, given: tuple[Outputs, Batch], proximal: Proximal | None, terms: dict[str, Tensor]
) -> LossReport:
    """Run `loss` with the loss weights of the batch multiplied by the first of `terms`, and log `terms`."""
    outputs, batch = given
    weight = batch.loss_weight * terms["importance/weight"]
    behaviour = batch.logprobs if proximal is None else proximal(batch).where(batch.loss_weight > 0, 0.0)
    report = loss(outputs, replace(batch, loss_weight=weight, logprobs=behaviour.detach()))
    return replace(report, metrics={**report.metrics, **token_means(batch, terms)})
