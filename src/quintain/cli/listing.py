"""``quintain methods`` and ``quintain environments``."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from quintain.cli.arguments import Parser
from quintain.cli.method_table import METHODS
from quintain.cli.tables import show

MEASURES = {
    "noop": "noop/success",
    "random": "random/success",
    "expert": "expert/success",
    "steps_per_second": "steps_per_second",
}
"""Column → name of the measurement in `CheckReport.measured`."""


def methods(argv: Sequence[str]) -> int:
    """List the published methods."""
    parser = Parser(
        "methods", "List the published methods and how far each has come: works, partial or planned."
    )
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    rows = method_rows()
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    states = Counter(row["state"] for row in rows)
    title = ", ".join(f"{states[state]} {state}" for state in ("works", "partial", "planned"))
    show(
        ("method", "family", "state", "recipe"),
        [(str(row["name"]), str(row["family"]), str(row["state"]), row["recipe"] or "") for row in rows],
        f"{len(rows)} methods: {title}",
    )
    return 0


def method_rows() -> list[dict[str, str | None]]:
    """Return every method: ``{"name": "DPO", "family": "preference", "state": …, "recipe": "dpo"}``."""
    return [
        {"name": name, "family": family, "state": state, "recipe": recipe}
        for family, rows in METHODS.items()
        for name, state, recipe in rows
    ]


def environments(argv: Sequence[str]) -> int:
    """List the environments."""
    parser = Parser("environments", "List the environments; file.py:Class and package.module:Class work too.")
    parser.switch("--measure", "play no-op, random and expert episodes of each (takes a while)")
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    rows = [environment_row(name, is_measured=arguments.measure) for name in environment_names()]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    columns = ["name", "kind", "tags", *(MEASURES if arguments.measure else ())]
    show(columns, [[cell(row[column]) for column in columns] for row in rows])
    return 0


def environment_names() -> list[str]:
    """Return the names in the catalogue, sorted."""
    from quintain.environments.catalog import CATALOG

    return sorted(CATALOG)


def environment_row(name: str, *, is_measured: bool) -> dict[str, Any]:
    """Return what is known of the environment `name`; an adapter stands with its example.

    Success of the baselines is None where it was not measured, or where there is no such baseline.
    """
    from quintain.environments.catalog import ADAPTERS, find

    spec = ADAPTERS.get(name, name)
    row: dict[str, Any] = {
        "name": spec,
        "kind": "real" if name in ADAPTERS else "embedded",
        "tags": sorted(find(spec).kind.tags),
        **dict.fromkeys(MEASURES),
    }
    if is_measured:
        from quintain.environments.check import check

        measured = check(spec).measured
        row |= {key: measured.get(source) for key, source in MEASURES.items()}
    return row


def cell(value: object) -> str:
    """Return `value` as it stands in a table."""
    if isinstance(value, list):
        return ", ".join(cast("list[str]", value))
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)
