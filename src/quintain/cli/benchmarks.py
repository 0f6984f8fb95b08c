"""Several agents on several benchmarks, in the terminal and as a page: success, intervals, cost, and who is better.

Over all benchmarks the rate is that of all tasks, and its interval is clustered: tasks of one benchmark belong
together, so that five of them are five observations and not hundreds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.tables import show
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.eval.compare import Comparison
    from quintain.eval.report import Report
    from quintain.types import Task, Trajectory

ALL = "all"
"""What the row over all benchmarks is called."""


@dataclass(frozen=True)
class Benchmarks:
    """What was played: ``Benchmarks(episodes={"guess": {"tiny": […]}}, reports={"guess": {"tiny": Report(…)}})``."""

    episodes: Mapping[str, Mapping[str, Sequence["Trajectory"]]]
    """environment → target → episodes"""
    reports: Mapping[str, Mapping[str, "Report"]]

    @property
    def targets(self) -> list[str]:
        """Return who played, the baseline first."""
        return list(next(iter(self.reports.values())))

    @cached_property
    def overall(self) -> "Comparison | None":
        """Return the comparison over all environments, each a cluster; None of one target."""
        from quintain.eval.compare import compare
        from quintain.eval.report import ENVIRONMENT

        if len(self.targets) < 2:
            return None
        together: dict[str, list[Trajectory]] = {name: [] for name in self.targets}
        for world, own in self.episodes.items():
            for name, played in own.items():
                together[name] += [replace(t, task=name_world(t.task, world)) for t in played]
        return compare(together, cluster=ENVIRONMENT)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each environment: success and its interval by target."""
        return [
            (world, *(rate_of(report.evaluation) for report in own.values()))
            for world, own in self.reports.items()
        ] + ([(ALL, *(rate_of(row.evaluation) for row in self.overall.rows))] if self.overall else [])

    def costs(self) -> list[tuple[str, str]]:
        """Return what a task took each target on average, over all environments."""
        from quintain.eval.report import sum_cost

        found: list[tuple[str, str]] = []
        for name in self.targets:
            played = [t for own in self.episodes.values() for t in own[name]]
            found.append((name, sum_cost(played).per_task(len({t.task.id for t in played}))))
        return found

    def leaderboard(self) -> list[tuple[str, str]]:
        """Return BFCL's number by target, from the categories among the environments; [] where there are none."""
        from quintain.adapters.bfcl.summary import summarise

        rates = {
            world.partition("/")[2].partition("?")[0]: own
            for world, own in self.reports.items()
            if world.startswith("bfcl/")
        }
        found: list[tuple[str, str]] = []
        for name in self.targets if rates else ():
            told = summarise({category: own[name].evaluation.success for category, own in rates.items()})
            left = (
                f"; {len(told.missing)} categories were not measured and count as 0" if told.missing else ""
            )
            found.append(
                (name, f"{100 * told.overall:.2f} %{left}; of whole parts {100 * told.measured:.2f} %")
            )
        return found


def name_world(task: "Task", world: str) -> "Task":
    """Return `task` as one of `world`: two specs of one environment have tasks of the same names."""
    return replace(task, id=f"{world} {task.id}", environment=world)


def rate_of(found: Any) -> str:
    """Return ``62.5 % [38.6, 81.5]``."""
    return f"{100 * found.success:.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def print_benchmarks(found: Benchmarks, *, is_json: bool) -> None:
    """Print all of it, as JSON or as tables."""
    overall = found.overall
    if is_json:
        told = {
            "environments": {
                world: {name: report.as_json() for name, report in own.items()}
                for world, own in found.reports.items()
            },
            "overall": None if overall is None else asdict(overall),
            "leaderboard": dict(found.leaderboard()),
        }
        write_line(json.dumps(told, indent=2))
        return
    show(("benchmark", *found.targets), found.rows(), "success [95 % interval]; all: clustered by benchmark")
    show(("run", "cost of a task"), found.costs())
    if overall is not None:
        from quintain.eval.compare import COLUMNS

        title = f"success against {overall.baseline}, paired by task, clustered by benchmark"
        show(COLUMNS, [row.cells() for row in overall.rows], title)
    if board := found.leaderboard():
        show(("run", "BFCL's number"), board)


def write_page(found: Benchmarks, place: Path, command: str) -> None:
    """Write all of it to `place` as a page of Markdown, under the `command` that made it."""
    from quintain.eval.compare import COLUMNS

    overall = found.overall
    lines = ["# Agents on benchmarks", "", "```", command, "```", "", "## Success, with 95 % intervals", ""]
    lines += table(("benchmark", *found.targets), found.rows())
    lines += ["", "*all*: over all tasks; tasks of one benchmark belong together (clustered interval).", ""]
    lines += ["## What a task takes", "", *table(("run", "on average"), found.costs()), ""]
    if overall is not None:
        lines += [f"## Against {overall.baseline}, paired by task, clustered by benchmark", ""]
        lines += [*table(COLUMNS, [row.cells() for row in overall.rows]), ""]
    if board := found.leaderboard():
        lines += ["## BFCL's number", "", *table(("run", "by the leaderboard's weights"), board), ""]
    lines += ["## What became of the episodes", ""]
    rows = [
        (world, name, ", ".join(f"{kind} {count}" for kind, count in report.outcomes.items() if count))
        for world, own in found.reports.items()
        for name, report in own.items()
    ]
    lines += table(("benchmark", "run", "outcomes"), rows)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (columns, *rows)]
    head, *body = (f"| {' | '.join(row)} |" for row in cells)
    return [head, f"|{'---|' * len(columns)}", *body]
