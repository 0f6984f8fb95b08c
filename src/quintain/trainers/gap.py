"""How far the learner's log-probs are from those the engine sampled with, and how far they may be.

On the batch that was just sampled both speak of the same weights, so the difference is only rounding. A larger
one means that something else was sampled than is trained: stale weights or cache, another temperature, a
shifted mask. The one rule: above `STOP` nothing is trained.
"""

import logging

from quintain.errors import InvariantError
from quintain.types import Batch, Outputs

WARN = 0.02
"""Mean difference in nats from which a warning is logged."""
STOP = 0.1
"""Mean difference in nats from which training stops."""
_log = logging.getLogger("quintain.trainers")


def gap(outputs: Outputs, batch: Batch) -> tuple[float, float]:
    """Return the sum and the largest of |learner - engine| over the trained tokens, in nats."""
    difference = (outputs.logprobs.detach() - batch.logprobs)[batch.turn_id >= 0].abs()
    return float(difference.sum()), float(difference.max())


def check(mean: float, largest: float) -> None:
    """Warn or raise when the mean difference is too large.

    Raises:
        InvariantError: it is above `STOP`.
    """
    if mean > STOP:
        raise InvariantError(
            f"log-probs of engine and learner: got a mean difference of {mean:.3f} nats (largest {largest:.3f}), more "
            f"than {STOP}; the engine serves other weights, or samples at another temperature, than are trained"
        )
    if mean > WARN:
        _log.warning("engine and learner differ by %.3f nats per token (largest %.3f)", mean, largest)
