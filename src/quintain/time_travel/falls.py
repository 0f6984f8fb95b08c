"""Where a metric of a run falls for good.

The rule: a fall begins after a step when every later value lies below the mean of the (up to three) values up to that
step by more than two standard errors of that mean. Of several such steps it is the one with the largest contrast, the
difference of the means of both sides times the root of n₁n₂/(n₁ + n₂). For success the standard error is that of as
many episodes as were played; else it comes from the median of the differences of neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import fmean, median
from typing import Any

from quintain.errors import DataError, UsageError, suggestion

METRICS = ("success", "return")
LEVEL, ERRORS, MIN_VALUES = 3, 2.0, 3
"""Values that the level before a fall is the mean of; standard errors below it; values that a curve needs."""
BACK = 3
"""Updates before a fall that are suspected as well."""
MAD = 1.4826 / sqrt(2)
"""Median of |differences of neighbours| → standard deviation of a value, where they are normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """Where a metric falls: ``Fall(metric="eval/success", step=20, seen=30, low=40, before=0.62, after=0.31)``."""

    metric: str
    step: int
    """the last measured step before it"""
    seen: int
    """the first measured step after it"""
    low: int
    """the first step at which it is no better than the mean of all values after the fall"""
    before: float
    after: float
    """mean of all values from `seen` on"""

    @property
    def updates(self) -> tuple[int, int]:
        """The first and the last update to suspect: from `BACK` before the fall is seen to where the metric is low.

        An optimizer's momentum carries an update on, so that harm may be seen steps later. A training metric of a step
        is of the weights before its update.
        """
        late = 0 if self.metric.startswith("eval/") else 1
        return max(1, self.step + 1 - BACK - late), self.low - late


def find_fall(rows: Sequence[Mapping[str, Any]], metric: str) -> Fall:
    """Return where `metric` falls in the curve `rows`; that of evaluations, where there are enough of them.

    Raises:
        UsageError: it is none of `METRICS`. DataError: it does not fall for good, or has too few values.
    """
    kind, _, name = metric.rpartition("/")
    if name not in METRICS or kind not in ("", "eval", "train"):
        raise UsageError(f"--metric: got {metric!r}; {suggestion(name, METRICS)}")
    own = {"eval": f"eval/{name}", "train": "train/reward" if name == "return" else f"train/{name}"}
    curves = {key: [row for row in rows if row.get(full) is not None] for key, full in own.items()}
    kind = kind or ("eval" if len(curves["eval"]) >= MIN_VALUES else "train")
    full, known = own[kind], curves[kind]
    if len(known) < MIN_VALUES:
        raise DataError(
            f"where {full} falls: got {len(known)} values; a curve needs {MIN_VALUES}, or name the updates with --steps"
        )
    values = [float(row[full]) for row in known]
    found = split_at_fall(values, [_error_of(known, values, place, full) for place in range(len(values))])
    if found is None:
        raise DataError(
            f"where {full} falls: got none after which all of its {len(values)} values stay more than {ERRORS:g} "
            "standard errors below; name the updates to look at with --steps"
        )
    after = fmean(values[found + 1 :])
    low = next(place for place in range(found + 1, len(values)) if values[place] <= after)
    return Fall(
        low=int(known[low]["step"]), metric=full, step=int(known[found]["step"]), seen=int(known[found + 1]["step"]),
        before=fmean(values[max(0, found - LEVEL + 1) : found + 1]), after=after,
    )  # fmt: skip


def split_at_fall(values: Sequence[float], errors: Sequence[float]) -> int | None:
    """Return the place of the last of `values` before they fall for good, by the rule above; None where they do not.

    `errors` are standard errors of the level up to each place.
    """
    found: tuple[float, int] | None = None
    for place in range(len(values) - 1):
        own, rest = values[max(0, place - LEVEL + 1) : place + 1], values[place + 1 :]
        if max(rest) >= fmean(own) - ERRORS * errors[place]:
            continue
        contrast = (fmean(own) - fmean(rest)) * sqrt(len(own) * len(rest) / (len(own) + len(rest)))
        if found is None or contrast > found[0]:
            found = contrast, place
    return None if found is None else found[1]


def _error_of(rows: Sequence[Mapping[str, Any]], values: Sequence[float], place: int, metric: str) -> float:
    """Return the standard error of the level up to `place`."""
    own = values[max(0, place - LEVEL + 1) : place + 1]
    episodes = rows[place].get("eval/episodes")
    if metric == "eval/success" and episodes:
        count = float(episodes) * len(own)
        share = (fmean(own) * count + 1) / (count + 2)  # one more of each, so that 0 and 1 have an error, too
        return sqrt(share * (1 - share) / count)
    steps = [abs(a - b) for a, b in pairwise(values)]
    return MAD * median(steps) / sqrt(len(own))
