"""``quintain methods`` and ``quintain environments``."""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from quintain.cli.arguments import Parser, whole_number
from quintain.cli.tables import show
from quintain.errors import UsageError
from quintain.methods.table import TABLE
from quintain.types.terminal import write_line

MEASURES = ("noop", "random", "expert", "steps_per_second")
"""Columns of scores; see `quintain.environments.scores`."""
KNOWN = ("formula", "mechanism", "comparison", "real_model")
"""Columns of methods; see `quintain.methods.table.Columns`."""


def methods(argv: Sequence[str]) -> int:
    """List the published methods."""
    parser = Parser(
        "methods",
        "List the published methods, what each needs, and what is known of it: whether its formula is the paper's, "
        "whether its mechanism is shown, what a comparison with the paper's baseline says, and since when it is known "
        "to train a real model. Done is what has the first two and the last.",
    )
    parser.switch("--json", "print JSON, with the reasons")
    arguments = parser.read(argv)
    rows = method_rows()
    if arguments.json:
        write_line(json.dumps(rows, indent=2))
        return 0
    columns = ("title", "about", "family", "name", "done", *KNOWN, "needs")
    title = f"{sum(row['done'] for row in rows)} done"
    show(
        ("method", *columns[1:5], *(name.replace("_", " ") for name in KNOWN), "needs"),
        [[cell(row[column]) for column in columns] for row in sorted(rows, key=order_row)],
        f"{len(rows)} methods, {title}; which one: docs/which-method.md",
    )
    return 0


def order_row(row: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return where a method stands: those that are done first, those without code last."""
    return not row["done"], not row["about"]


def method_rows() -> list[dict[str, Any]]:
    """Return every published method: ``{"title": "DPO", "family": "preference", "name": "dpo", "done": …}``.

    Those without code are among them, with nothing known.
    """
    return [
        {
            "title": e.title,
            "about": e.about,
            "family": e.family,
            "name": e.name if e.module else None,
            **e.columns._asdict(),
            "real_model": f"yes, {e.columns.real_model}" if e.columns.real_model else "no",
        }
        for e in TABLE
        if e.is_row
    ]


def environments(argv: Sequence[str]) -> int:
    """List the environments, or serve one of them."""
    from quintain.environments.scores import load_scores, measure_scores, save_scores

    if argv and argv[0] == "serve":
        from quintain.cli.serving import serve

        return serve(argv[1:])
    parser = Parser(
        "environments",
        "List the environments; file.py:Class and package.module:Class work too. "
        "`quintain environments serve E` offers one to others, see its --help.",
    )
    parser.switch("--measure", "play no-op, random and expert episodes of each anew (takes a while)")
    parser.flag("--episodes", "episodes per baseline that --measure plays (default 50)", "N", "50")
    parser.switch("--record", "keep what --measure found in the installed package; for those who change it")
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    episodes = whole_number(arguments.episodes, "--episodes", least=1)
    if arguments.record and not arguments.measure:
        raise UsageError("--record: got it without --measure, so there is nothing to record; give both")

    from quintain.environments.catalog import ELSEWHERE

    names = environment_names()
    played = [name for name in names if name.partition("/")[0] not in ELSEWHERE]
    scores = {name: measure_scores(name, episodes) for name in played} if arguments.measure else load_scores()
    if arguments.record:
        save_scores(scores)
    rows = [environment_row(name, scores.get(name, {})) for name in names]
    if arguments.json:
        write_line(json.dumps(rows, indent=2))
        return 0
    columns = ("name", "about", "kind", "tags", *MEASURES)
    show(columns, [[cell(row[column]) for column in columns] for row in rows])
    return 0


def environment_names() -> list[str]:
    """Return the names in the catalogue, sorted; an adapter stands with its example."""
    from quintain.environments.catalog import ADAPTERS, CATALOG

    return sorted(ADAPTERS.get(name, name) for name in CATALOG)


def environment_row(name: str, scores: Mapping[str, float | None]) -> dict[str, Any]:
    """Return what is known of the environment `name`: ``{"name", "about", "kind", "tags", "noop", "random", …}``.

    `about` is the first line of its file. A score is the share of episodes that succeeded, None where there is no such
    baseline or no measurement.
    """
    from quintain.environments.catalog import ADAPTERS, find

    kind = find(name).kind
    return {
        "name": name,
        "about": (inspect.getdoc(inspect.getmodule(kind)) or "").partition("\n")[0],
        "kind": "real" if name in ADAPTERS.values() else "embedded",
        "tags": sorted(kind.tags),
        **{measure: scores.get(measure) for measure in MEASURES},
    }


def cell(value: object) -> str:
    """Return `value` as it stands in a table."""
    if isinstance(value, (list, tuple)):
        return ", ".join(cast("Sequence[str]", value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)
