"""Does a method do what its paper says? It and its baseline on one world, over seeds, at equal budget.

Arms of a seed that act through the same harness start from the same policy, act on the same tasks, and end when the
same number of environment steps or of sampled tokens is used up (`Job.max_env_steps`, `max_sampled_tokens`); what is
compared is the last evaluation on unseen tasks or the mean over the run (`at`), seed by seed. A trial is one run;
benchmarks with the same baseline share it, and trials of one world and seed share the policy that was warmed up once.
The one rule: a run that was begun is continued and one that is done is read, so a benchmark that was stopped goes on
where it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from quintain.benchmarks.start import imitated
from quintain.config import build
from quintain.errors import DataError
from quintain.eval.statistics import bootstrap_mean, paired_bootstrap
from quintain.methods.find import find_method
from quintain.methods.loops import train_by
from quintain.store.creation import CHECKPOINTS
from quintain.store.run import Run
from quintain.training.context import START
from quintain.training.job import Job
from quintain.training.progress import Display
from quintain.types import NOTHING

ARMS = ("method", "baseline")
KINDS = ("value", "area")
"""What an arm came to: at the end, and over the run."""
ENOUGH = 0.35
"""Success on training tasks at which imitation before training ends: room to learn, and enough to learn from."""
TUNING = 1000
"""Seed on which the learning rate of an arm is chosen; results are of seeds below it."""
MAKES_START = (
    "environment", "model", "agent", "seed", "demonstrations", "mistakes", "imitation_rate", "imitation_epochs",
    "temperature",
)  # fmt: skip
"""Settings that the policy before training is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A claim and how it is tested: ``Benchmark(name="gigpo", recipe="gigpo", baseline="grpo", …)``."""

    name: str
    """what ``--only`` names"""
    recipe: str
    baseline: str
    """recipe that the method is compared with"""
    environment: str
    claim: str
    """what the paper says, in a sentence"""
    shared: Mapping[str, Any] = NOTHING
    """settings of both arms: model, steps, budget, learning rate, …"""
    settings: Mapping[str, Any] = NOTHING
    """settings of the method alone"""
    baseline_settings: Mapping[str, Any] = NOTHING
    measure: str = "eval/success"
    """metric that is compared"""
    at: Literal["end", "run"] = "end"
    """compare the last value, or the mean over the run: how fast it was learned (steps to a level, made smooth)"""
    is_lower_better: bool = False
    no_worse_by: float | None = None
    """where the claim is that nothing is lost: how much less the method may come to; none where it is to gain"""
    rates: tuple[float, ...] = ()
    """learning rates that each arm is tried at first; without, the one of its settings is used"""
    tried: str = ""
    """what was tried where the claim does not hold here"""

    def arm(self, arm: str, seed: int, overrides: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return recipe and settings of ``method`` or ``baseline``."""
        own, recipe = (
            (self.settings, self.recipe) if arm == "method" else (self.baseline_settings, self.baseline)
        )
        values = {"environment": self.environment, **self.shared, **own, **overrides, "seed": seed}
        return recipe, values


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What came of one run: ``Arm(value=0.82, turns=4096, tokens=20480, seconds=61.5)``."""

    value: float
    """the measure at the last evaluation"""
    area: float
    """the measure averaged over the training, weighed by environment steps"""
    turns: int
    tokens: int
    seconds: float
    run: str
    curve: tuple[tuple[float, float], ...] = ()
    """(environment steps so far, the measure) at each evaluation"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: ``Trial(recipe="grpo", given={"tasks": 8}, config=grpo.Config(tasks=8))``."""

    recipe: str
    given: Mapping[str, Any]
    """what the benchmark sets; the same again is the same trial"""
    config: Any

    @property
    def name(self) -> str:
        """The folder of its run: recipe, seed, and a digest of what was set."""
        return f"{self.recipe}-{self.config.seed}-{digest(self.given)}"

    @property
    def start(self) -> str:
        """The folder of the policy that it starts from: a digest of what makes that policy."""
        made_of = {key: getattr(self.config, key) for key in MAKES_START}
        if not self.config.mistakes:
            del made_of["mistakes"]  # starts that were made before teachers could err keep their names
        return f"start-{self.config.seed}-{digest(made_of)}"


def trial(benchmark: Benchmark, arm: str, *, seed: int, overrides: Mapping[str, Any] = NOTHING) -> Trial:
    """Return the run that ``method`` or ``baseline`` of `benchmark` is with `seed`."""
    recipe, values = benchmark.arm(arm, seed, overrides)
    config = build(find_method(recipe).config_class, values, f"benchmark {benchmark.name}")
    config.check()
    return Trial(recipe=recipe, given=values, config=config)


def probes(benchmark: Benchmark, arm: str, *, overrides: Mapping[str, Any] = NOTHING) -> dict[float, Trial]:
    """Return the runs that tell the learning rate of an arm, by rate; none where there is nothing to choose."""
    if "learning_rate" in overrides:
        return {}
    return {
        rate: trial(benchmark, arm, seed=TUNING, overrides={**overrides, "learning_rate": rate})
        for rate in benchmark.rates
    }


def best_rate(benchmark: Benchmark, found: Mapping[float, Arm]) -> float:
    """Return the rate that is best in what is compared; of equals, in the other of last value and mean over the run."""
    sign = -1.0 if benchmark.is_lower_better else 1.0
    kinds = KINDS if benchmark.at == "end" else KINDS[::-1]
    return max(found, key=lambda rate: tuple(sign * float(getattr(found[rate], kind)) for kind in kinds))


def digest(values: Mapping[str, Any]) -> str:
    """Return a short name of `values` that does not depend on their order."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def warm(chosen: Trial, root: Path) -> Path:
    """Return the folder under `root` of the policy that `chosen` starts from, which is made where it is missing."""
    folder = root / chosen.start
    if not (folder / START / "config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        job = Job(**{key: getattr(chosen.config, key) for key in MAKES_START})
        with (
            Run.create(folder, recipe=chosen.recipe, config=asdict(job)) as run,
            Display(chosen.start, 1, 0) as display,
        ):
            found = imitated(job, run, display, enough=ENOUGH)
            run.event("start", f"imitated until success was {found:.3f}", success=found)
            run.finish("done")
    return folder / START


def perform(chosen: Trial, root: Path) -> Path:
    """Return the folder under `root` of the finished run of `chosen`: run, continued, or as it was."""
    folder, start = root / chosen.name, root / chosen.name / START
    if not (folder / "config.json").exists():
        opening = Run.create(folder, recipe=chosen.recipe, config=asdict(chosen.config))
    elif is_done(chosen, root):
        return folder
    else:
        opening = Run.open(folder)
    with opening as run:
        if not (start / "config.json").exists():
            shutil.copytree(warm(chosen, root), start, dirs_exist_ok=True)
        train_by(find_method(chosen.recipe).make(chosen.config), chosen.config, run)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return folder


def is_done(chosen: Trial, root: Path) -> bool:
    """Return whether the run of `chosen` came to its end; settings that it did not have yet may have been added.

    Raises:
        DataError: it was begun with other settings, because a default has changed since.
    """
    folder = root / chosen.name
    if not (folder / "config.json").exists():
        return False
    now = json.loads(json.dumps(asdict(chosen.config)))
    with Run.open(folder, writable=False) as run:
        other = sorted(key for key, value in run.config.items() if key in now and now[key] != value)
        if other:
            raise DataError(
                f"benchmark run {folder}: got one with another {other[0]}; delete it, or name another --runs"
            )
        return run.status == "done"


def arm_of(benchmark: Benchmark, folder: Path) -> Arm:
    """Return what the finished run in `folder` is to `benchmark`."""
    with Run.open(folder, writable=False) as run:
        return measured(benchmark, run)


def measured(benchmark: Benchmark, run: Run) -> Arm:
    """Return what the curve of a finished `run` says."""
    rows = [row for row in run.metrics() if row.get(benchmark.measure) is not None]
    if not rows:
        raise DataError(
            f"benchmark run {run.folder}: got no {benchmark.measure}; name a metric that it records"
        )
    points = [(float(row["total/turns"]), float(row[benchmark.measure])) for row in rows]
    last = run.metrics()[-1]
    return Arm(
        value=points[-1][1],
        area=area(points),
        turns=int(last["total/turns"]),
        tokens=int(last["total/tokens"]),
        seconds=float(last["time/seconds"]),
        run=run.folder.name,
        curve=tuple(points),
    )


def area(points: Sequence[tuple[float, float]]) -> float:
    """Return the mean height of the line through `points` (x, y) in order; the last y where x never moves.

    Example: (0, 0), (1, 1), (3, 1) → 5/6.
    """
    width = points[-1][0] - points[0][0]
    if width <= 0:
        return points[-1][1]
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(points)) / width


def row(
    benchmark: Benchmark,
    seeds: Mapping[int, Mapping[str, Arm]],
    command: str,
    date: str = "",
    rates: Mapping[str, float] = NOTHING,
) -> dict[str, Any]:
    """Return the result of `benchmark` as it is stored: means, 95 % intervals over seeds, paired differences.

    `command` and `date` say how and when it was measured, `rates` which learning rate was chosen for an arm.
    Differences are in favour of the method where they are above 0, whichever way the measure points.
    """
    order = sorted(seeds)
    sign = -1.0 if benchmark.is_lower_better else 1.0
    result: dict[str, Any] = {
        "method": benchmark.recipe,
        "baseline": benchmark.baseline,
        "environment": benchmark.environment,
        "measure": benchmark.measure,
        "at": benchmark.at,
        "claim": benchmark.claim,
        "tried": benchmark.tried,
        "shared": dict(benchmark.shared),
        "settings": dict(benchmark.settings),
        "baseline_settings": dict(benchmark.baseline_settings),
        "rates": {"tried": list(benchmark.rates), **rates},
        "seeds": order,
        "command": command,
        "date": date,
    }
    compared = KINDS[0] if benchmark.at == "end" else KINDS[1]
    for arm in ARMS:
        values = [float(getattr(seeds[seed][arm], compared)) for seed in order]
        low, high = bootstrap_mean(values)
        result[f"{arm}_result"] = {
            "mean": sum(values) / len(values),
            "low": low,
            "high": high,
            "by_seed": [asdict(seeds[seed][arm]) for seed in order],
        }
    for kind in KINDS:
        first = [sign * float(getattr(seeds[seed]["baseline"], kind)) for seed in order]
        second = [sign * float(getattr(seeds[seed]["method"], kind)) for seed in order]
        gain = paired_bootstrap(first, second)
        result["gain_at_end" if kind == "value" else "gain_in_area"] = {
            "mean": gain.mean,
            "low": gain.low,
            "high": gain.high,
            "wins": sum(b > a for a, b in zip(first, second, strict=True)),
        }
    result["gain"] = result["gain_at_end" if benchmark.at == "end" else "gain_in_area"]
    mean, wins = result["gain"]["mean"], result["gain"]["wins"]
    gained = mean > 0 and wins * 3 >= 2 * len(order)
    result["no_worse_by"] = benchmark.no_worse_by
    result["is_better"] = gained if benchmark.no_worse_by is None else mean >= -benchmark.no_worse_by
    result["seconds"] = sum(arm.seconds for arms in seeds.values() for arm in arms.values())
    return result
