"""Curves out of the rows of a run: points of (step, value), and the success that a curve shows.

A row without the metric, or with null, is no point; nothing is interpolated here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TASK = re.compile(r"(?:eval/)?task/(.+)/success")
"""The metric of one environment's success in a mixed run, held out or in training."""
Rows = Sequence[Mapping[str, Any]]
Point = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Success over steps: ``Success(held_out=((0, 0.1), (9, 0.9)), band=((0, 0.05, 0.2),), training=())``."""

    held_out: tuple[Point, ...]
    band: tuple[tuple[int, float, float], ...]
    """(step, low, high): the 95 % interval of each evaluation that has one"""
    training: tuple[Point, ...]
    """smoothed over about a twentieth of the run"""

    @property
    def main(self) -> tuple[Point, ...]:
        """The curve to judge by: held-out success, or that in training where nothing was held out."""
        return self.held_out or self.training

    @property
    def last_step(self) -> int:
        """The right end of the curve, at least 1."""
        return max((step for step, _ in (*self.held_out, *self.training)), default=1) or 1


def points(rows: Rows, name: str) -> tuple[Point, ...]:
    """Return the points of the metric `name`, in the order of steps."""
    found = {int(row["step"]): float(row[name]) for row in rows if row.get(name) is not None}
    return tuple(sorted(found.items()))


def smooth(curve: Sequence[Point], window: int) -> tuple[Point, ...]:
    """Return the mean of each point and the `window` - 1 before it."""
    return tuple(
        (step, sum(value for _, value in curve[max(0, i + 1 - window) : i + 1]) / min(i + 1, window))
        for i, (step, _) in enumerate(curve)
    )


def success(rows: Rows) -> Success:
    """Return the success curves of `rows`, as `Run.metrics` gives them."""
    low, high = dict(points(rows, "eval/low")), dict(points(rows, "eval/high"))
    training = points(rows, "train/success")
    return Success(
        held_out=points(rows, "eval/success"),
        band=tuple((step, low[step], high[step]) for step in sorted(low.keys() & high.keys())),
        training=smooth(training, max(1, len(training) // 20)),
    )


def by_task(rows: Rows) -> dict[str, tuple[Point, ...]]:
    """Return success by environment in a mixed run: held out, or smoothed in training where nothing was held out.

    {} for a run of one environment.
    """
    names = sorted({found[1] for row in rows for key in row if (found := TASK.fullmatch(key))})
    curves: dict[str, tuple[Point, ...]] = {}
    for name in names:
        training = points(rows, f"task/{name}/success")
        curves[name] = points(rows, f"eval/task/{name}/success") or smooth(
            training, max(1, len(training) // 20)
        )
    return {name: curve for name, curve in curves.items() if curve}
