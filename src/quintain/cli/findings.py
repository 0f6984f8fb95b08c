"""What `quintain check` found, printed as a table or as JSON."""

import json
from collections.abc import Sequence

from quintain.cli.tables import show
from quintain.errors import QuintainError
from quintain.types.findings import Finding
from quintain.types.terminal import write_line


def report(
    target: str,
    findings: Sequence[Finding],
    is_json: bool,
    fault: type[QuintainError],
    measured: dict[str, float] | None = None,
) -> int:
    """Print the findings and return 0, or the exit status of `fault` when one of them is a failure."""
    num_failed = sum(finding.state == "fail" for finding in findings)
    if is_json:
        rows = [finding._asdict() for finding in findings]
        found = {"target": target, "has_passed": not num_failed, "findings": rows, "measured": measured or {}}
        write_line(json.dumps(found, indent=2))
    else:
        verdict = f"{num_failed} of {len(findings)} failed" if num_failed else "passed"
        show(("probe", "state", "detail"), findings, target)
        took = f" in {measured['seconds']:.0f} s" if measured and "seconds" in measured else ""
        write_line(f"{target}: {verdict}{took}")
    return fault.exit_code if num_failed else 0
