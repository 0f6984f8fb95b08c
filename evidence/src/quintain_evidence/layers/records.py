"""What was measured, line by line: ``results/<row>.jsonl`` of the package. Lines are added and never changed.

Every line names its layer, the command that made it, package, processor, date and seconds. A claim that was changed
begins a new version; the lines of those before stay and are counted.
"""

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quintain.errors import DataError
from quintain.store.machine import processor
from quintain_evidence.layers.verdict import Check

Line = Mapping[str, Any]
RESULTS = Path(__file__).resolve().parents[1] / "results"
OBJECTIVE, FORMULA = "objective", "formula"
"""Layers whose lines hold what an audit found."""


def provenance(command: str) -> dict[str, Any]:
    """Return what every line says of how it was made."""
    return {
        "command": command,
        "package": version("quintain"),
        "processor": processor(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def append(folder: Path, row: str, line: Line) -> None:
    """Add a line to the results of `row`; a line that an interruption cut off before it is ended first."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{row}.jsonl"
    text = json.dumps(line, sort_keys=True, allow_nan=False) + "\n"
    with file.open("ab+") as handle:
        if handle.tell():
            handle.seek(-1, 2)
            if handle.read(1) != b"\n":
                text = "\n" + text
        handle.write(text.encode())


def lines(folder: Path, row: str, layer: str = "") -> list[dict[str, Any]]:
    """Return the lines of `row`, of `layer` where it is named, oldest first; one that was cut off is left out.

    Raises:
        DataError: a whole line is no JSON object.
    """
    file = folder / f"{row}.jsonl"
    if not file.exists():
        return []
    found: list[dict[str, Any]] = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            if not text.endswith("}"):
                continue
            raise DataError(f"{file} line {number}: got no JSON; restore the file") from error
        if not isinstance(line, dict):
            raise DataError(f"{file} line {number}: got no JSON object; restore the file")
        if not layer or line.get("layer") == layer:
            found.append(line)
    return found


def version_of(known: list[dict[str, Any]], spec: str) -> int:
    """Return which version of a claim `spec` is, by the `known` lines: 1, 2, … in order of their first results."""
    order = list(dict.fromkeys(line["spec"] for line in known))
    return order.index(spec) + 1 if spec in order else len(order) + 1


def record(folder: Path, row: str, layer: str, spec: str, checks: Sequence[Check], command: str) -> None:
    """Append what an audit found of `spec`; the newest line of a layer counts, and a changed row is audited again."""
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
