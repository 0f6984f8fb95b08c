"""L = -Σ w_t · b_t · H(π(· | y_<t)): a bonus for staying undecided.

b_t = 1 is the ordinary bonus; CoSo (arXiv 2505.03792) gives b_t per token, by how much the token decides the
action. The one rule: the entropy is that of the policy now, over the whole vocabulary, as the learner
measured it.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from quintain.errors import UsageError
from quintain.losses.measure import token_means, weighted_sum
from quintain.types import Batch, Loss, LossReport, Outputs


def entropy_bonus(token_weight: Callable[[Batch], Tensor] | None = None) -> Loss:
    """Return minus the weighted entropy (nats); give it its coefficient with `combine`.

    `token_weight` returns b [N] of a batch, without gradient.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        entropy = outputs.entropy if token_weight is None else outputs.entropy * token_weight(batch)
        return LossReport(
            loss=-weighted_sum(batch, entropy), metrics=token_means(batch, {"entropy/bonus": entropy})
        )

    return loss


def entropy_band(low: float, high: float) -> Loss:
    """Return Σ w_t · (how far H is outside [`low`, `high`]), nats: entropy that neither dies nor explodes.

    The smoothing term of entropy-regularised policy optimisation (arXiv 2509.22576), whose band is a share of the
    entropy of earlier steps (see `band_of`). There the penalty is a constant outside the band, which has no gradient;
    here it is the distance, whose gradient leads back.
    """
    if not 0 <= low <= high:
        raise UsageError(f"band of the entropy: got {low} to {high} nats; give 0 <= low <= high")

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        outside = (low - outputs.entropy).clamp(min=0) + (outputs.entropy - high).clamp(min=0)
        share = (outside.detach() > 0).to(outside.dtype)
        return LossReport(
            loss=weighted_sum(batch, outside), metrics=token_means(batch, {"entropy/outside": share})
        )

    return loss


def band_of(
    entropies: Sequence[float], *, low: float = 0.8, high: float = 1.2, window: int = 10
) -> tuple[float, float]:
    """Return the band around the mean of the last `window` entropies: all of [0, ∞) while there are none.

    Example: entropies 1 and 3 → (1.6, 2.4).
    """
    recent = list(entropies)[-window:]
    if not recent:
        return 0.0, float("inf")
    mean = sum(recent) / len(recent)
    return low * mean, high * mean
