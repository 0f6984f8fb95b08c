"""k1 = d, k2 = d²/2, k3 = exp(-d) - 1 + d with d = log π - log π_ref: estimates of KL(π ‖ π_ref) per token.

Schulman 2020 ("Approximating KL divergence"); k3 in the loss is GRPO's (arXiv 2402.03300). Added to a loss they pull
towards the reference: on-policy, the gradient of k2 is that of KL(π ‖ π_ref) and the gradient of k3 that of KL(π_ref
‖ π). That of k1 is 0 in expectation: k1 belongs into the reward (`quintain.credit.penalty`). The penalty is added, so
a step on it alone moves the policy towards the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from quintain.errors import UsageError, suggestion
from quintain.losses.measure import reference_of, token_means, weighted_sum
from quintain.losses.policy import LOG_RATIO_LIMIT
from quintain.types import Batch, Loss, LossReport, Outputs

if TYPE_CHECKING:
    from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


def kl_estimate(logprobs: Tensor, reference: Tensor, estimator: Estimator = "k3") -> Tensor:
    """Return the estimate per token, shaped as the inputs. Example: -1 against -1.5 → k1 .5, k3 .10653."""
    difference = (logprobs - reference).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    return (-difference).exp() - 1 + difference


def kl_penalty(estimator: Estimator = "k3") -> Loss:
    """Return Σ w_t k(y_t); give it its coefficient with `quintain.losses.compose.combine`.

    Logs `kl/penalty`, and `kl/reference` (k3, whatever the estimator). Needs the reference's log-probs.
    """
    if estimator not in get_args(Estimator):
        raise UsageError(f"KL estimator: got {estimator!r}; {suggestion(estimator, get_args(Estimator))}")

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        reference = reference_of(batch)
        penalty = kl_estimate(outputs.logprobs, reference, estimator)
        terms = {"kl/penalty": penalty, "kl/reference": kl_estimate(outputs.logprobs, reference)}
        return LossReport(loss=weighted_sum(batch, penalty), metrics=token_means(batch, terms))

    return loss


def adapt_coefficient(
    coefficient: float, kl: float, *, target: float, num: int, horizon: float = 10_000
) -> float:
    """Return the next coefficient: multiplied by 1 + clip(kl/target - 1, ±.2)·num/horizon (arXiv 1909.08593).

    `kl` is the mean KL of `num` episodes, in the unit of `target`. Example: .2 with KL 12, target 6, 64
    episodes → .200256.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coefficient * (1 + error * num / horizon)
