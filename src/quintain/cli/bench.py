"""``quintain bench methods``: methods against their baselines, over seeds, at equal budget.

Every result is written as soon as its last seed is there. The one rule: a number is stored with the command that
made it.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import Parser, whole_number
from quintain.cli.tables import show
from quintain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from quintain.recipes.benchmark import Arm, Benchmark

FAMILIES: dict[str, str] = {"rl": "quintain.recipes.rl_benchmarks"}
"""family → module that lists its `BENCHMARKS`"""
COLUMNS = ("method", "world", "method's mean", "baseline's mean", "gain", "wins", "minutes")
Results = dict[int, dict[str, "Arm"]]


def bench(argv: Sequence[str]) -> int:
    """Run a benchmark."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: quintain bench methods --family rl [--only NAME] [--seeds 3] [--jobs 1]")
        return 0 if argv else UsageError.exit_code
    what, *rest = argv
    if what != "methods":
        raise UsageError(f"what to benchmark: got {what!r}; {suggestion(what, ('methods',))}")
    return methods(rest)


def methods(argv: Sequence[str]) -> int:
    """Run the methods of a family against their baselines."""
    parser = Parser("bench methods", "Run methods against their baselines, over seeds, at equal budget.")
    parser.flag("--family", f"family of methods: {', '.join(FAMILIES)}", "FAMILY", "rl")
    parser.flag("--only", "benchmarks to run, separated by commas (default: all of the family)", "NAMES")
    parser.flag("--seeds", "seeds of each (default 3)", "N", "3")
    parser.flag("--jobs", "processes that run seeds side by side, one thread each (default 1)", "N", "1")
    parser.flag("--runs", "folder that holds the runs (default runs/bench)", "ROOT", "runs/bench")
    parser.flag("--output", "file of results (default docs/results/FAMILY.json)", "FILE")
    parser.flag("--set", "settings of both arms over those of the benchmark, as JSON", "JSON", "{}")
    parser.switch("--json", "print the results as JSON")
    arguments = parser.read(argv)
    chosen = benchmarks(arguments.family, arguments.only)
    seeds = whole_number(arguments.seeds, "--seeds", least=1)
    jobs = whole_number(arguments.jobs, "--jobs", least=1)
    output = Path(arguments.output or f"docs/results/{arguments.family}.json")
    run = Sweep(
        Path(arguments.runs), output, overrides(arguments.set), " ".join(["quintain bench methods", *argv])
    )
    rows = run(chosen, range(seeds), jobs)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        show(
            COLUMNS, [cells(name, row) for name, row in rows.items()], f"{output}: 95 % intervals over seeds"
        )
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


def overrides(text: str) -> dict[str, Any]:
    """Return the settings in the JSON object `text`."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"--set: got {text!r}, which is no JSON; write '{{\"steps\": 4}}'") from error
    if not isinstance(found, dict):
        raise UsageError(f"--set: got {text!r}; write a JSON object such as '{{\"steps\": 4}}'")
    return found  # pyright: ignore[reportUnknownVariableType]


class Sweep:
    """Runs benchmarks by seeds: a seed is both arms, one after the other, in one process."""

    def __init__(self, root: Path, output: Path, settings: Mapping[str, Any], command: str) -> None:
        self.root, self.output, self.settings, self.command = root, output, settings, command
        self.started = time.monotonic()

    def __call__(
        self, chosen: "Sequence[Benchmark]", seeds: Sequence[int], jobs: int
    ) -> dict[str, dict[str, Any]]:
        """Return the stored results of `chosen`, by name."""
        from quintain.recipes.benchmark import row

        self.root.mkdir(parents=True, exist_ok=True)
        found: dict[str, Results] = {benchmark.name: {} for benchmark in chosen}
        wanted = [(benchmark, seed) for benchmark in chosen for seed in seeds]
        rows: dict[str, dict[str, Any]] = {}
        for number, (benchmark, seed, arms) in enumerate(self._arms(wanted, jobs), 1):
            found[benchmark.name][seed] = arms
            self._say(benchmark, seed, arms, number, len(wanted))
            if len(found[benchmark.name]) == len(seeds):
                command = f"{self.command}" if len(chosen) == 1 else f"{self.command} --only {benchmark.name}"
                rows[benchmark.name] = row(benchmark, found[benchmark.name], command)
                store(self.output, benchmark.name, rows[benchmark.name])
        return {benchmark.name: rows[benchmark.name] for benchmark in chosen}

    def _arms(self, wanted: "list[tuple[Benchmark, int]]", jobs: int) -> "Any":
        """Yield (benchmark, seed, arms) as they are done."""
        if jobs == 1:
            for benchmark, seed in wanted:
                yield benchmark, seed, both(benchmark, seed, self.root, self.settings)
            return
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=single) as pool:
            started: dict[Future[dict[str, Arm]], tuple[Benchmark, int]] = {
                pool.submit(both, benchmark, seed, self.root, self.settings): (benchmark, seed)
                for benchmark, seed in wanted
            }
            for future in as_completed(started):
                yield *started[future], future.result()

    def _say(
        self, benchmark: "Benchmark", seed: int, arms: "Mapping[str, Arm]", done: int, total: int
    ) -> None:
        """Print what a seed came to, and how long the rest may take."""
        taken = time.monotonic() - self.started
        left = taken / done * (total - done) / 60
        values = f"{arms['method'].value:.3f} against {arms['baseline'].value:.3f}"
        print(
            f"{benchmark.name} seed {seed}: {values}   {done}/{total} done, about {left:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


def single() -> None:
    """Let this process use one thread: the processes share the machine."""
    os.environ["OMP_NUM_THREADS"] = "1"
    importlib.import_module("torch").set_num_threads(1)


def both(benchmark: "Benchmark", seed: int, root: Path, settings: Mapping[str, Any]) -> "dict[str, Arm]":
    """Return what both arms of `benchmark` come to with `seed`."""
    from quintain.recipes.benchmark import ARMS, run_arm

    run: Callable[..., Arm] = run_arm
    return {arm: run(benchmark, arm, seed=seed, root=root, overrides=settings) for arm in ARMS}


def store(file: Path, name: str, row: Mapping[str, Any]) -> None:
    """Put `row` into the JSON object in `file` under `name`; the file is whole at any time."""
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[name] = dict(row)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n", encoding="utf-8")
    part.replace(file)


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
