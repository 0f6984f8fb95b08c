"""Sweeps: the trials of benchmarks, each run once, over seeds and processes; results are stored as they come."""

import datetime
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.errors import UsageError

if TYPE_CHECKING:
    from quintain.benchmarks.trials import Arm, Benchmark, Trial

    Plan = Mapping[tuple[int, str], Trial]

Results = dict[int, dict[str, "Arm"]]


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
        from quintain.benchmarks.trials import ARMS, trial

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
        from quintain.benchmarks.trials import ARMS, arm_of, best_rate, probes

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
        from quintain.benchmarks.trials import is_done

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
        from quintain.benchmarks.trials import perform, warm

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
        from quintain.benchmarks.trials import arm_of, row

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
