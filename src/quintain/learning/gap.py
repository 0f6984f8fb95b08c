"""How far the learner's log-probs are from those the engine sampled with, and how far they may be.

On the batch that was just sampled both speak of the same weights, so the difference is only rounding. A larger
one means that something else was sampled than is trained: stale weights or cache, another temperature, a
shifted mask. Above `STOP`, or where the log-probs of the tokens before fit better, nothing is trained.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import NamedTuple

from quintain.errors import InvariantError
from quintain.types import Batch, Outputs

WARN = 0.02
"""Mean difference in nats from which a warning is logged."""
STOP = 0.1
"""Mean difference in nats from which training stops."""
APART = 0.005
"""Mean difference in nats from which it is asked whether the tokens are shifted by one; it must then be halved."""
_log = logging.getLogger("quintain.learning")
_is_checked: ContextVar[bool] = ContextVar("is_checked", default=True)


@contextmanager
def skip_check() -> Generator[None]:
    """Within it any difference is let pass, as where recorded episodes are learned from by weights of another past."""
    token = _is_checked.set(False)
    try:
        yield
    finally:
        _is_checked.reset(token)


class Gap(NamedTuple):
    """|learner - engine| over the trained tokens, in nats."""

    total: float
    largest: float
    shifted: float
    """the total if each token had the engine's log-prob of the one before it"""
    num_stale: int = 0
    """trained tokens that were sampled with other weights, of which nothing is known"""
    age: int = 0
    """versions that the trained tokens are behind, in sum"""
    oldest: int = 0
    """versions that one of them is behind at most"""


def gap(outputs: Outputs, batch: Batch, version: int | None = None) -> Gap:
    """Return how far the learner's `outputs` are from what `batch` was sampled with.

    Where the tokens of `batch` name the weights that they were sampled with, only those of `version` are compared.
    """
    is_compared = is_trained = batch.turn_id >= 0
    stale = 0, 0, 0
    if batch.extra.versions is not None and version is not None:
        is_compared = is_trained & (batch.extra.versions == version)
        ages = version - batch.extra.versions[is_trained]
        stale = int((ages > 0).sum()), int(ages.sum()), int(ages.max()) if len(ages) else 0
    learned, sampled = outputs.logprobs.detach()[is_compared], batch.logprobs[is_compared]
    if not len(learned):
        return Gap(0.0, 0.0, 0.0, *stale)
    difference = (learned - sampled).abs()
    shifted = (learned - sampled.roll(1)).abs()
    return Gap(float(difference.sum()), float(difference.max()), float(shifted.sum()), *stale)


def check(mean: float, largest: float, shifted: float = inf) -> None:
    """Warn or raise when the mean difference is too large; `shifted` is the mean with tokens off by one.

    Raises:
        InvariantError: it is above `STOP`, or off by one the log-probs would fit better.
    """
    if not _is_checked.get():
        return
    if mean > APART and mean > 2 * shifted:
        raise InvariantError(
            f"log-probs of engine and learner: got a mean difference of {mean:.3f} nats, and {shifted:.3f} with tokens "
            "shifted by one; streams and log-probs are off by one, report this"
        )
    if mean > STOP:
        raise InvariantError(
            f"log-probs of engine and learner: got a mean difference of {mean:.3f} nats (largest {largest:.3f}), more "
            f"than {STOP}; the engine serves other weights, or samples at another temperature, than are trained"
        )
    if mean > WARN:
        _log.warning("engine and learner differ by %.3f nats per token (largest %.3f)", mean, largest)
