"""L = Σ w_t · (β·log(π(a)/π_ref(a)) - A)²: the log-ratio of a whole turn to a reference is fitted to its advantage.

The best policy under a KL penalty has β·log π*/π_ref = A* in every state, so the fit may use turns that any policy
took: there is no ratio to the sampler (WebRL, arXiv 2411.02337, eq. 5). log π(a) is the sum over the tokens of the
turn, and every token of it carries the whole turn's error: with `Update(aggregation="turn_mean")` the loss is the mean
over turns, as there; with a mean over tokens a turn of 20 would weigh ten times one of 2. With ``huber`` the error e
counts |e| - ½ beyond 1 and e²/2 below, what the code of WebRL takes. A failure pushes away by no more than its
advantage: where the ratio is A/β already, the gradient is 0.
"""

from typing import Literal

from quintain.errors import UsageError
from quintain.losses.measure import reference_of, token_means, unit_sum, weighted_sum
from quintain.types import Batch, Loss, LossReport, Outputs


def kl_regression(
    beta: float = 1.0,
    *,
    shape: Literal["square", "huber"] = "square",
) -> Loss:
    """Return the regression with the KL's weight `beta`.

    Logs ``regression/error``, the mean of |β·log-ratio - A|, and ``regression/log_ratio`` of turns. Example: β 1,
    log-ratio .2, A .5 → .09; log-ratio .3, A 1 → .49, with ``huber`` .245.

    Raises `UsageError` when β is not above 0, or when the batch carries no log-probs of a reference.
    """
    if not beta > 0:
        raise UsageError(f"beta of the regression: got {beta}; give a number above 0")

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        ratio = unit_sum(outputs.logprobs - reference_of(batch), batch, "turn")
        error = beta * ratio - batch.advantages
        size = error.abs()
        term = error.square() if shape == "square" else (error.square() / 2).where(size <= 1, size - 0.5)
        terms = {"regression/error": size, "regression/log_ratio": ratio}
        return LossReport(loss=weighted_sum(batch, term), metrics=token_means(batch, terms))

    return loss
