"""Which step of a curve did best on what is held out.

Success counts, then the return where success is the same; where nothing is played, the loss of held-out data, and of an
embedder its ranks. Of equal steps the earlier one is the best. It is a pure function of the rows of a curve.
"""

from collections.abc import Mapping, Sequence
from typing import Any

SUCCESS, RETURN, LOSS, RANKS = "eval/success", "eval/return", "eval/loss", "eval/mrr"
"""What is held out, by the names of its metrics; the first of success, loss and ranks that a curve has is judged by."""
Row = Mapping[str, Any]


def measure_of(rows: Sequence[Row]) -> str | None:
    """Return the name of the metric that the steps of `rows` are compared by; None where nothing was held out."""
    names = (SUCCESS, LOSS, RANKS)
    return next((name for name in names if any(row.get(name) is not None for row in rows)), None)


def score_of(row: Row, measure: str) -> tuple[float, float]:
    """Return how good the step of `row` is by `measure`, greater for better; the second number is for ties."""
    value = float(row[measure])
    if measure == LOSS:
        return -value, 0.0
    return value, float(row.get(RETURN) or 0.0) if measure == SUCCESS else 0.0


def best_row(rows: Sequence[Row]) -> Row | None:
    """Return the row of the best step of `rows`, the earliest of several; None where nothing was held out."""
    measure = measure_of(rows)
    if measure is None:
        return None
    measured = [row for row in rows if row.get(measure) is not None]
    return max(measured, key=lambda row: (score_of(row, measure), -int(row["step"])))


def best_step(rows: Sequence[Row]) -> int | None:
    """Return the best step of `rows`; None where nothing was held out."""
    row = best_row(rows)
    return None if row is None else int(row["step"])
