"""What a finished run shows: success before and after, the curve, where things lie, what to type next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.store.run import Run


def evaluations(run: Run) -> list[dict[str, Any]]:
    """Return the rows of the run's curve that hold an evaluation."""
    return [row for row in run.metrics() if row.get("eval/success") is not None]


def rate(row: Mapping[str, Any]) -> str:
    """Return the held-out success of `row` with its interval: ``51.2 % [45.1, 57.2]``."""
    success, low, high = (100 * float(row[f"eval/{name}"]) for name in ("success", "low", "high"))
    return f"{success:.1f} % [{low:.1f}, {high:.1f}]"


def summary(run: Run) -> str:
    """Return the lines printed at the end of a run."""
    rows = evaluations(run)
    if not rows:
        return f"run {run.name}: no evaluation was made"
    first, last = rows[0], rows[-1]
    lines = [
        f"held-out success  before {rate(first)}   after {rate(last)}   (95 % intervals, "
        f"{int(last['eval/episodes'])} unseen tasks)",
        f"time              {float(last['time/seconds']):.0f} s of training",
        f"run               {run.folder}   (curve.png, report.html, metrics.jsonl, model/)",
        f"next              quintain view {run.folder}",
        f"                  quintain eval {run.folder} --episodes 512",
        "                  quintain train grpo --environment guess --model tiny",
    ]
    return "\n".join(lines)
