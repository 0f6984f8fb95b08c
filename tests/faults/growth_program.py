"""A long run in one process that measures itself after every step: memory, descriptors, threads, time of the processor.

It reads a folder, a number of steps and the name of a loop from its input and prints one JSON object: of each measure
its level early and late in the run, and its slope a step. Time is that of this process on the processor, not of a clock
on the wall, and levels are medians, so that a busy machine changes little.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tests.faults.loops import MODEL, WARM

import quintain.text.encoder
from quintain.cli.main import main as run_command
from quintain.runs.context import TrainingContext

SKIPPED = 0.3
"""Share of the run in which caches fill up: it is not looked at."""


def resident() -> float:
    """Return the bytes of memory of this process that are in no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(float(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def measured() -> dict[str, float]:
    """Return what is measured now."""
    return {
        "memory": resident(),
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
        "threads": float(threading.active_count()),
        "time": time.process_time(),
    }


def watch(rows: list[dict[str, float]]) -> None:
    """Let every step that is recorded add a row."""
    original = TrainingContext.show

    def show(self: TrainingContext, step: int, row: Any) -> None:
        original(self, step, row)
        rows.append(measured())

    TrainingContext.show = show


def told(values: list[float]) -> dict[str, float]:
    """Return the level of `values` early and late, and their slope: the median over pairs of points (Theil and Sen)."""
    kept = values[int(SKIPPED * len(values)) :]
    part = max(1, len(kept) // 5)
    points = [(place, kept[place]) for place in range(0, len(kept), max(1, len(kept) // 100))]
    slopes = [(b - a) / (j - i) for n, (i, a) in enumerate(points) for j, b in points[n + 1 :]]
    return {
        "early": median(kept[:part]),
        "late": median(kept[-part:]),
        "most": max(kept),
        "slope": median(slopes) if slopes else 0.0,
    }


def main() -> None:
    """Do what the input asks."""
    root, steps = (line.strip() for line in sys.stdin)
    torch.set_num_threads(1)
    rows: list[dict[str, float]] = []
    watch(rows)
    quintain.text.encoder.CACHED_TEXTS = 512  # so that its caches are full long before the end
    line = (
        "train", "grpo", *WARM, *MODEL, "--tasks", "2", "--group-size", "4", "--steps", steps, "--eval-every", "50",
        "--run", "run", "--runs", root,
    )  # fmt: skip
    status = run_command(line)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["time"] = [
        after - before for before, after in zip(columns["time"], columns["time"][1:], strict=False)
    ]
    found = {name: told(values) for name, values in columns.items()}
    print(json.dumps({"status": status, "steps": len(rows), **found}))


if __name__ == "__main__":
    main()
