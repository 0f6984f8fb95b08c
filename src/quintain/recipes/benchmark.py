"""Does a method do what its paper says? It and its baseline on one world, over seeds, at equal budget.

Both arms of a seed start from the same policy, act on the same tasks, and end when the same number of environment
steps or of sampled tokens is used up (`Job.most_turns`, `most_tokens`); what is compared is the last evaluation on
unseen tasks, seed by seed. The one rule: a run that was begun is continued and one that is done is read, so a
benchmark that was stopped goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from quintain.errors import DataError
from quintain.eval.statistics import bootstrap_mean, paired_bootstrap
from quintain.recipes.configure import build
from quintain.recipes.names import recipe_module
from quintain.recipes.work import START
from quintain.store.run import Run
from quintain.types import NOTHING

ARMS = ("method", "baseline")


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
    """metric of the last evaluated step"""
    is_lower_better: bool = False

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


def run_arm(
    benchmark: Benchmark, arm: str, *, seed: int, root: Path, overrides: Mapping[str, Any] = NOTHING
) -> Arm:
    """Return what ``method`` or ``baseline`` of `benchmark` comes to with `seed`; runs lie under `root`.

    The second arm starts from the policy that the first was given.
    """
    recipe, values = benchmark.arm(arm, seed, overrides)
    module = recipe_module(recipe)
    config = build(module.Config, values, f"benchmark {benchmark.name}")
    folder = root / f"{benchmark.name}-{arm}-{seed}"
    other = root / f"{benchmark.name}-{ARMS[1 - ARMS.index(arm)]}-{seed}" / START
    if (folder / "config.json").exists():
        with Run.open(folder, writable=False) as run:
            if run.config != asdict(config):
                raise DataError(
                    f"benchmark run {folder}: got one with other settings; delete it, or name another --runs"
                )
            if run.status == "done":
                return measured(benchmark, run)
        with Run.open(folder) as run:
            module.train(config, run)
            return measured(benchmark, run)
    with Run.create(folder, recipe=recipe, config=asdict(config)) as run:
        if (other / "config.json").exists():
            shutil.copytree(other, folder / START)
        module.train(config, run)
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
        run=str(run.folder),
    )


def area(points: Sequence[tuple[float, float]]) -> float:
    """Return the mean height of the line through `points` (x, y) in order; the last y where x never moves.

    Example: (0, 0), (1, 1), (3, 1) → 5/6.
    """
    width = points[-1][0] - points[0][0]
    if width <= 0:
        return points[-1][1]
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(points)) / width


def row(benchmark: Benchmark, seeds: Mapping[int, Mapping[str, Arm]], command: str) -> dict[str, Any]:
    """Return the result of `benchmark` as it is stored: means, 95 % intervals over seeds, paired differences.

    Differences are in favour of the method where they are above 0, whichever way the measure points.
    """
    order = sorted(seeds)
    sign = -1.0 if benchmark.is_lower_better else 1.0
    result: dict[str, Any] = {
        "method": benchmark.recipe,
        "baseline": benchmark.baseline,
        "environment": benchmark.environment,
        "measure": benchmark.measure,
        "claim": benchmark.claim,
        "seeds": order,
        "command": command,
    }
    for arm in ARMS:
        values = [seeds[seed][arm].value for seed in order]
        low, high = bootstrap_mean(values)
        result[f"{arm}_result"] = {
            "mean": sum(values) / len(values),
            "low": low,
            "high": high,
            "by_seed": [asdict(seeds[seed][arm]) for seed in order],
        }
    for kind in ("value", "area"):
        first = [sign * float(getattr(seeds[seed]["baseline"], kind)) for seed in order]
        second = [sign * float(getattr(seeds[seed]["method"], kind)) for seed in order]
        gain = paired_bootstrap(first, second)
        result["gain" if kind == "value" else "gain_in_area"] = {
            "mean": gain.mean,
            "low": gain.low,
            "high": gain.high,
            "wins": sum(b > a for a, b in zip(first, second, strict=True)),
        }
    result["is_better"] = result["gain"]["mean"] > 0 and result["gain"]["wins"] * 3 >= 2 * len(order)
    result["seconds"] = sum(arm.seconds for arms in seeds.values() for arm in arms.values())
    return result
