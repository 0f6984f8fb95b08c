"""``quintain bench methods``: methods against their baselines, over seeds, at equal budget.

Every result is written as soon as its last seed is there. The one rule: a number is stored with the command that
made it.
"""

import importlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.benchmarks.sweep import Sweep, overrides
from quintain.cli.arguments import Parser, whole_number
from quintain.cli.tables import show
from quintain.cli.world_bench import worlds
from quintain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from quintain.benchmarks.trials import Benchmark

FAMILIES: dict[str, str] = {"rl": "quintain.benchmarks.comparisons.rl"}
"""family → module that lists its `BENCHMARKS`"""
COLUMNS = ("method", "world", "method's mean", "baseline's mean", "gain", "wins", "minutes")


def bench(argv: Sequence[str]) -> int:
    """Run a benchmark."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: quintain bench methods --family rl [--only NAME] [--seeds 3] [--jobs 1]")
        print("       quintain bench worlds [--only NAME] [--seeds 3] [--jobs 1]")
        return 0 if argv else UsageError.exit_code
    what, *rest = argv
    if what == "worlds":
        return worlds(rest)
    if what != "methods":
        raise UsageError(f"what to benchmark: got {what!r}; {suggestion(what, ('methods', 'worlds'))}")
    return methods(rest)


def methods(argv: Sequence[str]) -> int:
    """Run the methods of a family against their baselines."""
    parser = Parser("bench methods", "Run methods against their baselines, over seeds, at equal budget.")
    parser.flag("--family", f"family of methods: {', '.join(FAMILIES)}", "FAMILY", "rl")
    parser.flag("--only", "benchmarks to run, separated by commas (default: all of the family)", "NAMES")
    parser.flag("--seeds", "seeds of each (default 3)", "N", "3")
    parser.flag("--jobs", "processes that train side by side, one thread each (default 1)", "N", "1")
    parser.flag("--runs", "folder that holds the runs (default runs/bench)", "ROOT", "runs/bench")
    parser.flag("--output", "file of results (default docs/results/FAMILY.json)", "FILE")
    parser.flag("--set", "settings of both arms over those of the benchmark, as JSON", "JSON", "{}")
    parser.switch("--pages", "run nothing; write the stored results into the pages of the methods below docs")
    parser.switch("--json", "print the results as JSON")
    arguments = parser.read(argv)
    chosen = benchmarks(arguments.family, arguments.only)
    seeds = whole_number(arguments.seeds, "--seeds", least=1)
    jobs = whole_number(arguments.jobs, "--jobs", least=1)
    output = Path(arguments.output or f"docs/results/{arguments.family}.json")
    if arguments.pages:
        return pages(output, arguments.family)
    run = Sweep(Path(arguments.runs), output, overrides(arguments.set), without_names(argv))
    rows = run(chosen, range(seeds), jobs)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        show(
            COLUMNS, [cells(name, row) for name, row in rows.items()], f"{output}: 95 % intervals over seeds"
        )
    return 0


def without_names(argv: Sequence[str]) -> str:
    """Return the command that `argv` is of, without what ``--only`` names: each result adds its own name."""
    words = [word for word in argv if not word.startswith("--only=")]
    if "--only" in words:
        place = words.index("--only")
        del words[place : place + 2]
    return shlex.join(["quintain", "bench", "methods", *words])


def pages(results: Path, family: str) -> int:
    """Write `results` into the pages of the methods, and print which files that changed."""
    from quintain.benchmarks.pages import write_pages
    from quintain.methods.table import MODULES

    if not results.exists():
        raise UsageError(
            f"--pages: got no results in {results}; run the benchmarks first, or name another --output"
        )
    known = {name: f"{name}.md" for name in MODULES}
    docs = results.parent.parent
    for file in write_pages(json.loads(results.read_text(encoding="utf-8")), known, docs, family):
        print(file)
    return 0


def benchmarks(family: str, only: str | None) -> "list[Benchmark]":
    """Return the benchmarks of `family` that `only` names (all of them without).

    Raises:
        UsageError: there is no such family or benchmark.
    """
    if family not in FAMILIES:
        raise UsageError(f"--family: got {family!r}; {suggestion(family, FAMILIES)}")
    known: dict[str, Benchmark] = {
        found.name: found for found in vars(importlib.import_module(FAMILIES[family]))["BENCHMARKS"]
    }
    names = list(known) if only is None else [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"--only: got {name!r}; {suggestion(name, known)}")
    return [known[name] for name in names]


def cells(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return `row` as texts, one for each of `COLUMNS`."""

    def interval(part: Mapping[str, float], sign: str = "") -> str:
        return f"{part['mean']:{sign}.3f} [{part['low']:{sign}.3f}, {part['high']:{sign}.3f}]"

    return (
        name,
        row["environment"],
        interval(row["method_result"]),
        f"{row['baseline']} {interval(row['baseline_result'])}",
        interval(row["gain"], "+"),
        f"{row['gain']['wins']} of {len(row['seeds'])}",
        f"{row['seconds'] / 60:.1f}",
    )
