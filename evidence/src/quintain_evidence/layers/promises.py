"""The promise that a method trains a real model: what was recorded of it, and what keeps it.

A line of the layer ``promise`` in the results of a row has the command, the date and the figures of a run of a few
updates by LoRA, resumed once. The newest one counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quintain_evidence.layers.records import lines
from quintain_evidence.layers.verdict import Check

LAYER = "promise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What came of the newest try of a row on a real model: ``Promise(date="2026-11-27", model="smollm2", …)``."""

    date: str
    model: str
    command: str
    checks: tuple[Check, ...]
    figures: Mapping[str, float]
    seconds: float

    @property
    def is_kept(self) -> bool:
        """Return whether all that was asked held."""
        return bool(self.checks) and all(check.has_passed for check in self.checks)


def promise_of(row: str, folder: Path) -> Promise | None:
    """Return the newest recorded try of `row`; None where there is none."""
    own = lines(folder, row, LAYER)
    if not own:
        return None
    line = own[-1]
    return Promise(
        date=line["date"],
        model=line["model"],
        command=line["command"],
        checks=tuple(
            Check(name=each["name"], has_passed=each["passed"], detail=each["detail"])
            for each in line["checks"]
        ),
        figures=line["figures"],
        seconds=float(line["seconds"]),
    )
