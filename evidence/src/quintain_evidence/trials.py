"""Runs of a comparison: a method and its baseline on one world, from one start, at equal budget.

Arms of a seed that act through the same harness start from the same policy, act on the same tasks, and end when the
same number of environment steps or of sampled tokens is used up (`TrainConfig.max_env_steps`, `max_sampled_tokens`). A
trial is one run; comparisons with the same baseline share it, and trials of one world and seed share the policy that
was warmed up once. A run that was begun is continued and one that is done is read, so what was stopped goes on where it
was. `quintain_evidence.layers.league` says what runs show together.

Where the setting ``reward_model`` of an arm is a table, it is how a reward model is trained (`train reward_model`) on
the policy that the arm starts from; the arm is paid by that one, and arms of a seed that say the same share it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from quintain.config import build, rename
from quintain.errors import DataError
from quintain.learning.thresholds import thresholds
from quintain.learning.train_config import TrainConfig
from quintain.methods.find import find_method
from quintain.methods.method import Method, traits_of
from quintain.processes.freed import return_freed_memory
from quintain.rollout.progress import Display
from quintain.runs.monitors.alarms import Row, warn_of_hacking
from quintain.store.creation import CHECKPOINTS
from quintain.store.run import Run
from quintain.types import NOTHING

ARMS = ("method", "baseline")
ENOUGH = 0.35
"""Success on training tasks at which imitation before training ends: room to learn, and enough to learn from."""
MAKES_START = (
    "environment", "model", "agent", "seed", "task_offset", "demonstrations", "expert_noise", "imitation_lr",
    "imitation_epochs", "temperature",
)  # fmt: skip
"""Settings that the policy before training is made of."""
REWARD_MODEL = "reward_model"
"""The setting that names a reward model, and the method that trains one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What is compared with what, and where: ``Benchmark(name="gigpo", recipe="gigpo", baseline="grpo", …)``."""

    name: str
    """what ``--only`` names"""
    recipe: str
    baseline: str
    """recipe that the method is compared with"""
    environment: str
    shared: Mapping[str, Any] = NOTHING
    """settings of both arms: model, steps, budget, learning rate, …"""
    settings: Mapping[str, Any] = NOTHING
    """settings of the method alone"""
    baseline_settings: Mapping[str, Any] = NOTHING
    former: Mapping[str, Any] = NOTHING
    """defaults of the method that were others when the comparison was registered, as they were"""
    baseline_former: Mapping[str, Any] = NOTHING
    measure: str = "eval/success"
    """metric that is compared"""
    at: Literal["end", "run"] = "end"
    """compare the last value, or the mean over the run: how fast it was learned (steps to a level, made smooth)"""
    is_lower_better: bool = False
    no_worse_by: float | None = None
    """how much less the method may come to and still be "not worse"; none: .05"""
    rates: tuple[float, ...] = ()
    """learning rates of which both arms have the one that is best for the baseline; without, that of the settings"""
    enough: float = ENOUGH
    """success on training tasks at which imitation before training ends; 1: it goes through all passes"""

    def arm(self, arm: str, seed: int, overrides: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return recipe and settings of ``method`` or ``baseline``, under the names that options have now."""
        former, own, recipe = (
            (self.former, self.settings, self.recipe)
            if arm == "method"
            else (self.baseline_former, self.baseline_settings, self.baseline)
        )
        values = {"environment": self.environment, **former, **self.shared, **own, **overrides, "seed": seed}
        return recipe, self._rename(recipe, values)

    def _rename(self, recipe: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return `values` of `recipe`, which are called as they were when they were registered."""
        return rename(find_method(recipe).config_class, values, f"benchmark {self.name}", is_stored=True)


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
    updates: int = 0
    """passes over what was collected, minibatches counted one by one"""
    alarms: tuple[str, ...] = ()
    """alarms that the run raised"""
    alarms_at_end: tuple[str, ...] = ()
    """those that held when it ended"""
    curve: tuple[tuple[float, float], ...] = ()
    """(environment steps so far, the measure) at each evaluation"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: ``Trial(recipe="grpo", given={"tasks": 8}, config=grpo.Config(tasks=8))``."""

    recipe: str
    given: Mapping[str, Any]
    """what the benchmark sets; the same again is the same trial"""
    config: Any
    start_seed: int | None = None
    """seed of the policy that it starts from, where that is another run's"""
    start_task: int | None = None
    """`task_offset` of that run"""
    reward_model: Trial | None = None
    """the reward model that pays it, where that is trained for it; the configuration has the name of its run"""
    enough: float = ENOUGH
    """success on training tasks at which imitation before it ends"""

    def from_start(self, seed: int, task: int | None = None) -> Trial:
        """Return the same run from the policy of another `seed`, and with it the reward model that pays it."""
        task = self.start_task if task is None else task
        model = self.reward_model and self.reward_model.from_start(seed, task)
        config = replace(self.config, reward_model=model.name) if model else self.config
        return replace(self, start_seed=seed, start_task=task, reward_model=model, config=config)

    @property
    def name(self) -> str:
        """The folder of its run: recipe, seed, and a digest of what was set."""
        again = "" if self.start_seed is None else f"-from-{self.start_seed}"
        return f"{self.recipe}-{self.config.seed}-{digest({**self.given, **self._ends()})}{again}"

    @property
    def start(self) -> str:
        """The folder of the policy that it starts from: a digest of what makes that policy."""
        made_of = self.makes_start()
        # What was added to settings later is left out at its default: starts that were made before keep their names.
        named = {
            key: value
            for key, value in made_of.items()
            if value or key not in ("expert_noise", "task_offset")
        }
        return f"start-{made_of['seed']}-{digest({**named, **self._ends()})}"

    def _ends(self) -> dict[str, float]:
        """Return when imitation ends, where that is not as usual: other names are as they were before that was said."""
        return {} if self.enough == ENOUGH else {"enough": self.enough}

    def makes_start(self) -> dict[str, Any]:
        """Return the settings that the policy before training is made of."""
        made_of = {key: getattr(self.config, key) for key in MAKES_START}
        others = {"seed": self.start_seed, "task_offset": self.start_task}
        return made_of | {name: value for name, value in others.items() if value is not None}


def trial(benchmark: Benchmark, arm: str, *, seed: int, overrides: Mapping[str, Any] = NOTHING) -> Trial:
    """Return the run that ``method`` or ``baseline`` of `benchmark` is with `seed`."""
    recipe, values = benchmark.arm(arm, seed, overrides)
    model: Trial | None = None
    used = values
    if isinstance(fitted := values.get(REWARD_MODEL), Mapping):
        given = {key: value for key, value in values.items() if key in MAKES_START} | dict(fitted)
        model = configured(REWARD_MODEL, given, given, benchmark)
        used = {**values, REWARD_MODEL: model.name}
    return replace(configured(recipe, values, used, benchmark), reward_model=model)


def configured(recipe: str, given: Mapping[str, Any], used: Mapping[str, Any], benchmark: Benchmark) -> Trial:
    """Return the run of `recipe` that is named by what was `given`, configured by what is `used`."""
    config = build(find_method(recipe).config_class, used, f"benchmark {benchmark.name}")
    config.check()
    return Trial(recipe=recipe, given=given, config=config, enough=benchmark.enough)


def digest(values: Mapping[str, Any]) -> str:
    """Return a short name of `values` that does not depend on their order."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def warm(chosen: Trial, root: Path) -> Path:
    """Return the folder under `root` of the policy that `chosen` starts from, which is made where it is missing."""
    from quintain.learning.saved import START
    from quintain_evidence.start import imitated  # here, for results can be read without torch

    folder = root / chosen.start
    if not (folder / START / "config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        config = TrainConfig(**chosen.makes_start())
        with (
            Run.create(folder, recipe=chosen.recipe, config=asdict(config)) as run,
            Display(chosen.start, 1, 0) as display,
        ):
            found = imitated(config, run, display, enough=chosen.enough)
            run.event("start", f"imitated until success was {found:.3f}", success=found)
            run.finish("done")
    return folder / START


def perform(chosen: Trial, root: Path) -> Path:
    """Return the folder under `root` of the finished run of `chosen`: run, continued, or as it was."""
    from quintain.learning.saved import START, find_model

    folder, start = root / chosen.name, root / chosen.name / START
    if not (folder / "config.json").exists():
        opening = Run.create(folder, recipe=chosen.recipe, config=asdict(chosen.config))
    elif is_done(chosen, root):
        return folder
    else:
        opening = Run.open(folder)
    config = chosen.config
    if chosen.reward_model is not None:
        config = replace(config, reward_model=find_model(str(perform(chosen.reward_model, root))))
    method = find_method(chosen.recipe).make(config)
    with opening as run:
        if not (makes_own_start(method, chosen.config) or (start / "config.json").exists()):
            shutil.copytree(warm(chosen, root), start, dirs_exist_ok=True)
        method.train(run, config)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return_freed_memory()
    return folder


def makes_own_start(method: Method, config: TrainConfig) -> bool:
    """Return whether the start is part of `method`: it chooses what is imitated before, or `config` shows nothing."""
    return traits_of(method).has_own_start or config.demonstrations == 0


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
    every = run.metrics()
    last = every[-1]
    held = raised_in(last) | hacked_between(every, rows, run)
    raised = held.union(*map(raised_in, every))
    return Arm(
        value=points[-1][1],
        area=area(points),
        turns=int(last["total/turns"]),
        tokens=int(last["total/tokens"]),
        seconds=float(last["time/seconds"]),
        run=run.folder.name,
        updates=int(last["step"]) * updates_of_step(run.config),
        alarms=tuple(sorted(raised)),
        alarms_at_end=tuple(sorted(held)),
        curve=tuple(points),
    )


def updates_of_step(config: Mapping[str, Any]) -> int:
    """Return the optimizer steps of a step of a run: those of a round, where its configuration says how many."""
    if "updates" in config:
        return int(config["updates"])
    return int(config.get("num_epochs", 1)) * int(config.get("num_minibatches", 1))


def raised_in(row: Row) -> set[str]:
    """Return the alarms that held in `row` of the metrics."""
    return {name.removeprefix("alarm/") for name in row if name.startswith("alarm/") and row[name]}


def hacked_between(every: Sequence[Row], evaluated: Sequence[Row], run: Run) -> set[str]:
    """Return the alarm for hacking of a run that was evaluated at its ends only: its training is cut in three."""
    if len(evaluated) != 2:
        return set()
    trained = [row for row in every if row.get("train/reward") is not None]
    third = len(trained) / 3
    parts = [trained[round(k * third) : round((k + 1) * third)] for k in range(3)]
    judge = "eval/audit" if "eval/audit" in evaluated[-1] else "eval/success"
    first, last = (float(row.get(judge) or 0.0) for row in evaluated)
    found = warn_of_hacking(every, parts, (first, last), thresholds(run.config.get("monitors", "")))
    return {alarm.name for alarm in found} if all(parts) else set()


def area(points: Sequence[tuple[float, float]]) -> float:
    """Return the mean height of the line through `points` (x, y) in order; the last y where x never moves.

    Example: (0, 0), (1, 1), (3, 1) → 5/6.
    """
    width = points[-1][0] - points[0][0]
    if width <= 0:
        return points[-1][1]
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(points)) / width
