"""``quintain bench methods``: methods against their baselines, over seeds, at equal budget.

Every result is written as soon as its last seed is there. The one rule: a number is stored with the command that
made it.
"""

import datetime
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import Parser, whole_number
from quintain.cli.tables import show
from quintain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from quintain.recipes.benchmark import Arm, Benchmark, Trial

    Plan = Mapping[tuple[int, str], Trial]

FAMILIES: dict[str, str] = {"rl": "quintain.recipes.benchmarks.rl"}
"""family → module that lists its `BENCHMARKS`"""
COLUMNS = ("method", "world", "method's mean", "baseline's mean", "gain", "wins", "minutes")
Results = dict[int, dict[str, "Arm"]]


def bench(argv: Sequence[str]) -> int:
    """Run a benchmark."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: quintain bench methods --family rl [--only NAME] [--seeds 3] [--jobs 1]")
        print("       quintain bench worlds [--only NAME] [--seeds 3] [--jobs 1]")
        return 0 if argv else UsageError.exit_code
    what, *rest = argv
    if what == "worlds":
        from quintain.cli.world_bench import worlds

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
    from quintain.recipes.benchmark_pages import write_pages
    from quintain.recipes.names import RECIPES

    if not results.exists():
        raise UsageError(
            f"--pages: got no results in {results}; run the benchmarks first, or name another --output"
        )
    known = {recipe: f"{place.rpartition('.')[2]}.md" for recipe, place in RECIPES.items()}
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
    """Runs the trials that benchmarks are made of, each once, and stores a result when its last trial is there."""

    def __init__(self, root: Path, output: Path, settings: Mapping[str, Any], command: str) -> None:
        self.root, self.output, self.settings, self.command = root, output, settings, command
        self.rates: dict[str, dict[str, float]] = {}
        self.rows: dict[str, dict[str, Any]] = {}

    def __call__(
        self, chosen: "Sequence[Benchmark]", seeds: Sequence[int], jobs: int
    ) -> dict[str, dict[str, Any]]:
        """Return the stored results of `chosen`, by name."""
        from quintain.recipes.benchmark import ARMS, trial

        self.root.mkdir(parents=True, exist_ok=True)
        self._tune(chosen, jobs)
        plans: dict[str, Plan] = {
            b.name: {
                (s, arm): trial(b, arm, seed=s, overrides={**self.settings, **self._rate(b, arm)})
                for s in seeds
                for arm in ARMS
            }
            for b in chosen
        }
        for done in self._run({t.name: t for plan in plans.values() for t in plan.values()}, jobs, "runs"):
            self._store(chosen, plans, done)
        return {benchmark.name: self.rows[benchmark.name] for benchmark in chosen}

    def _tune(self, chosen: "Sequence[Benchmark]", jobs: int) -> None:
        """Choose the learning rate of every arm that has a choice."""
        from quintain.recipes.benchmark import ARMS, arm_of, best_rate, probes

        tried = {(b.name, arm): probes(b, arm, overrides=self.settings) for b in chosen for arm in ARMS}
        trials = {found.name: found for runs in tried.values() for found in runs.values()}
        for _ in self._run(trials, jobs, "runs for learning rates"):
            pass
        for benchmark in chosen:
            self.rates[benchmark.name] = {
                arm: best_rate(benchmark, {r: arm_of(benchmark, self.root / t.name) for r, t in runs.items()})
                for arm in ARMS
                if (runs := tried[benchmark.name, arm])
            }

    def _rate(self, benchmark: "Benchmark", arm: str) -> dict[str, float]:
        """Return the setting that was chosen for an arm."""
        chosen = self.rates[benchmark.name]
        return {"learning_rate": chosen[arm]} if arm in chosen else {}

    def _run(self, trials: "Mapping[str, Trial]", jobs: int, what: str) -> Iterator[set[str]]:
        """Run what is left of `trials`, and yield the names of those that are done: at first and after each."""
        from quintain.recipes.benchmark import is_done

        done = {name for name, found in trials.items() if is_done(found, self.root)}
        left = [found for name, found in trials.items() if name not in done]
        started = time.monotonic()
        yield done
        for number, name in enumerate(self._performed(left, jobs), 1):
            done.add(name)
            minutes = (time.monotonic() - started) / number * (len(left) - number) / 60
            told = f"{name}: {len(done)}/{len(trials)} {what} done, about {minutes:.0f} min left"
            print(told, file=sys.stderr, flush=True)
            yield done

    def _performed(self, left: "Sequence[Trial]", jobs: int) -> Iterator[str]:
        """Yield the names of trials as they are done; policies to start from are made before, each once."""
        from quintain.recipes.benchmark import perform, warm

        if jobs == 1 or not left:
            for found in left:
                yield perform(found, self.root).name
            return
        with workers(jobs) as pool:
            starts = {found.start: found for found in left}
            for made in [pool.submit(warm, found, self.root) for found in starts.values()]:
                made.result()
            for future in as_completed([pool.submit(perform, found, self.root) for found in left]):
                yield future.result().name

    def _store(self, chosen: "Sequence[Benchmark]", plans: "Mapping[str, Plan]", done: set[str]) -> None:
        """Write the rows of the benchmarks whose trials are all `done` and that are not written yet."""
        from quintain.recipes.benchmark import arm_of, row

        for benchmark in chosen:
            plan = plans[benchmark.name]
            if benchmark.name in self.rows or not done.issuperset(t.name for t in plan.values()):
                continue
            seeds: Results = {}
            for (seed, arm), found in plan.items():
                seeds.setdefault(seed, {})[arm] = arm_of(benchmark, self.root / found.name)
            command = f"{self.command} --only {benchmark.name}"
            date, rates = datetime.date.today().isoformat(), self.rates[benchmark.name]
            self.rows[benchmark.name] = row(benchmark, seeds, command, date, rates)
            store(self.output, benchmark.name, self.rows[benchmark.name])


def workers(jobs: int) -> ProcessPoolExecutor:
    """Return `jobs` processes that train side by side, one thread each, and end with this one."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_single)


def _single() -> None:
    """Let this process use one thread, for the processes share the machine, and end with the one that started it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    importlib.import_module("torch").set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True, name="quintain-parent").start()


def _end_with_parent() -> None:
    """Wait for the end of the process that started this one, and leave; what was begun goes on with the next call."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


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
