"""L = -Σ w_t · log π(y_t | y_<t): behaviour cloning on the tokens that were sampled.

The default of every supervised method (A-SFT): prompts, system text and observations have weight 0, the end of turn
has weight. What to imitate is decided by filters and weights, not here. The advantage is ignored;
`imitate_weighted` is the one that reads it.
"""

from quintain.losses.measure import token_means, weighted_sum
from quintain.types import Batch, Loss, LossReport, Outputs


def imitation() -> Loss:
    """Return the negative log-likelihood; logs `imitation/nll` (nats per trained token) and its entropy."""

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        metrics = token_means(
            batch, {"imitation/nll": -outputs.logprobs, "imitation/entropy": outputs.entropy}
        )
        return LossReport(loss=-weighted_sum(batch, outputs.logprobs), metrics=metrics)

    return loss


def imitate_weighted() -> Loss:
    """Return -Σ w_t · A_t · log π(y_t): likelihood weighted by the advantage (RWR, AWR arXiv 1910.00177).

    Unlike a policy loss it takes data from any policy. Weights below 0 push away and have no lower bound.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        metrics = token_means(
            batch,
            {
                "imitation/nll": -outputs.logprobs,
                "imitation/entropy": outputs.entropy,
                "imitation/weight": batch.advantages,
            },
        )
        return LossReport(loss=-weighted_sum(batch, batch.advantages * outputs.logprobs), metrics=metrics)

    return loss
