"""What `quintain check` found, printed as a table or as JSON."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from quintain.cli.tables import show
from quintain.errors import QuintainError


class Line(NamedTuple):
    """One thing that was looked at; `state` is pass, fail or skip."""

    name: str
    state: str
    detail: str


def report(
    target: str,
    lines: Sequence[Line],
    is_json: bool,
    fault: type[QuintainError],
    measured: dict[str, float] | None = None,
) -> int:
    """Print the findings and return 0, or the exit status of `fault` when one of them is a failure."""
    num_failed = sum(line.state == "fail" for line in lines)
    if is_json:
        rows = [line._asdict() for line in lines]
        found = {"target": target, "has_passed": not num_failed, "findings": rows, "measured": measured or {}}
        print(json.dumps(found, indent=2))
    else:
        verdict = f"{num_failed} of {len(lines)} failed" if num_failed else "passed"
        show(("probe", "state", "detail"), lines, target)
        took = f" in {measured['seconds']:.0f} s" if measured and "seconds" in measured else ""
        print(f"{target}: {verdict}{took}")
    return fault.exit_code if num_failed else 0
