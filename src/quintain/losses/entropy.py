"""L = -Σ w_t · b_t · H(π(· | y_<t)): a bonus for staying undecided.

b_t = 1 is the ordinary bonus; CoSo (arXiv 2505.03792) gives b_t per token, by how much the token decides the action.
The entropy is that of the policy now, over the whole vocabulary, as the learner measured it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quintain.losses.measure import token_means, weighted_sum
from quintain.types import Batch, Loss, LossReport, Outputs

if TYPE_CHECKING:
    from torch import Tensor


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
