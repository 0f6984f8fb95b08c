"""What audits of rows found, layers 0 and 1: one line each in the results of the row.

The newest line of a layer counts. A line names what it is of (``spec``), so that a changed row is audited again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from quintain.benchmarks.evidence.records import append, lines, provenance
from quintain.benchmarks.evidence.verdict import Check

OBJECTIVE, FORMULA = "objective", "formula"


def record(folder: Path, row: str, layer: str, spec: str, checks: Sequence[Check], command: str) -> None:
    """Append what an audit found."""
    told = [{"name": check.name, "passed": check.has_passed, "detail": check.detail} for check in checks]
    append(folder, row, {"layer": layer, "row": row, "spec": spec, "checks": told, **provenance(command)})


def formulas_key(names: Iterable[str]) -> str:
    """Return what the formula layer of a row is of: its formulas by name."""
    return ", ".join(sorted(set(names)))


def found_of(folder: Path, row: str, layer: str, spec: str) -> tuple[Check, ...] | None:
    """Return what the newest audit of `spec` found; None where there is none."""
    own = [line for line in lines(folder, row, layer) if line["spec"] == spec]
    if not own:
        return None
    checks: list[dict[str, Any]] = own[-1]["checks"]
    return tuple(
        Check(name=found["name"], has_passed=found["passed"], detail=found["detail"]) for found in checks
    )
