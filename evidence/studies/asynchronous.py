"""What asynchronous training buys where tools are slow now and then, and what it costs in what is learned:
python evidence/studies/asynchronous.py [--seeds 0 1 2 3 4] [--json FILE] [--picture FILE]

In the world, a number from 1 to 8 is to be found in four turns from "higher" and "lower", which a tool says that takes
0.05 to 2 s in training (a Pareto distribution of shape 1.2, cut off; drawn for each call; real sleeps). All arms of a
seed train by policy gradients of group advantages from the same start, on the same tasks, for the same number of steps
of 64 episodes, with at most 64 episodes alive at once and one optimizer step for each. Tokens of old weights are
weighed by min(π_learner/π_sampler, 2), which with one optimizer step is decoupled PPO (arXiv 2505.24298); for a token
of the newest weights the weight is 1.

    0           synchronous: nobody waits for another's tool, but a step waits for the last of its episodes
    1, 2, 4, 8  asynchronous: episodes of later steps are played meanwhile; no token is more versions old than that
    lockstep    synchronous: whoever acts in the round of a token is waited for by all; 8 steps, for its speed alone

Seconds are those of the steps: collecting, learning, handing weights over. Evaluations (played without sleeps) are
not in them; as tools go on under an evaluation, the ratio with evaluations is told, too. "Computing" is the processor
time of the process, loading and evaluating included, over its wall time. Claims, decided on before the run, over five
paired seeds:

1. the median of seconds with a staleness of 0 over seconds with one of 4 is at least 2.8;
2. success on 256 held-out tasks at the end is as good with a staleness of 4 as with 0: the 90 % interval of the
   difference is within ±.05 (two one-sided tests at .05);
3. no token is older than its bound, and every step has all of its episodes.

All of it is told for every staleness, without a threshold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from quintain.data.samples import token_versions
from quintain.environments.protocol import Environment
from quintain.methods.rl import policy_gradient
from quintain.store.run import Run
from quintain.types import Action, Failure, StepResult, Task, Trajectory
from quintain_evidence.layers.inference import estimate

WORLD = f"{Path(__file__).resolve()}:Search"
SHORTEST, LONGEST, SHAPE = 0.05, 2.0, 1.2
"""Seconds of a tool."""
TASKS, SIZE = 8, 8
ALIVE = TASKS * SIZE
STEPS, EVAL_EVERY, HELD_OUT = 90, 15, 256
SYNCHRONOUS, CLAIMED, LOCKSTEP = "0", "4", "lockstep"
ARMS = (SYNCHRONOUS, CLAIMED, "1", "2", "8", LOCKSTEP)
LOCKSTEP_STEPS = 8
LEAST_RATIO, TOLERANCE = 2.8, 0.05
RECIPE: Mapping[str, Any] = {
    "loss": "truncated", "credit": "group", "learning_rate": 2e-3, "lr_schedule": "linear", "lr_warmup": 9,
    "tasks": TASKS, "group_size": SIZE, "concurrency": ALIVE,
    "eval_environment": WORLD, "eval_episodes": HELD_OUT, "eval_every": EVAL_EVERY, "records_signals": False,
}  # fmt: skip


class Search(Environment):
    """Find the hidden number from 1 to 8: say one number, and hear whether it is higher or lower."""

    max_turns = 4

    def reset(self, task: Task) -> str:
        """Hide a number."""
        self.hidden, self.least, self.most = task.rng.randint(1, 8), 1, 8
        return "Which number?"

    def step(self, action: Action) -> StepResult:
        """Compare."""
        said = action.text.strip()
        number = int(said) if said.isdecimal() else 0
        if number == self.hidden:
            return StepResult(observation="right", reward=1.0, is_terminated=True)
        if not 1 <= number <= 8:
            return StepResult(observation="what?", is_valid=False)
        if number < self.hidden:
            self.least = max(self.least, number + 1)
            return StepResult(observation="higher")
        self.most = min(self.most, number - 1)
        return StepResult(observation="lower")

    def expert_action(self) -> Action:
        """Return the number that halves what is left."""
        return Action(text=str((self.least + self.most) // 2))


class SlowSearch(Search):
    """Find the hidden number from 1 to 8: say one number, and hear whether it is higher or lower."""

    parallel = ALIVE
    is_variant = True
    _delays = Random()
    """not of the task's seed: members of a group wait each for itself"""

    def step(self, action: Action) -> StepResult:
        """Wait for the tool."""
        time.sleep(min(SHORTEST * self._delays.paretovariate(SHAPE), LONGEST))
        return super().step(action)


def train_in(folder: Path, **options: Any) -> None:
    """Train the run in `folder`."""
    config = policy_gradient.Config(
        model=options.pop("model", "micro"), agent="text", max_turn_tokens=4, **options
    )
    config.check()
    with Run.create(folder, recipe="policy_gradient", config=asdict(config)) as run:
        policy_gradient.method(config).train(run, config)


def prepare(folder: Path, seed: int) -> None:
    """Make the model of `seed` that all arms start from: it knows how a number is said, and little of which."""
    train_in(
        folder, environment=WORLD, seed=seed, eval_start=False, eval_episodes=1, tasks=1, group_size=2, steps=1,
        demonstrations=48, imitation_epochs=7,
    )  # fmt: skip


def train(folder: Path, arm: str, seed: int, steps: int) -> dict[str, Any]:
    """Return what an arm came to: seconds, success by step, and how old its tokens were."""
    way = {"rollout": "lockstep"} if arm == LOCKSTEP else {"rollout": "async", "max_staleness": int(arm)}
    cpu, wall = time.process_time(), time.monotonic()
    start = folder.parent / f"{seed}-start" / "start"
    train_in(
        folder, environment=WORLD.replace(":Search", ":SlowSearch"), model=str(start), demonstrations=0, seed=seed,
        steps=min(steps, LOCKSTEP_STEPS) if arm == LOCKSTEP else steps, **RECIPE, **way,
    )  # fmt: skip
    cpu = time.process_time() - cpu
    with Run.open(folder, writable=False) as run:
        rows = run.metrics()
        episodes = list(run.trajectories(phase="train"))
    learned = [row for row in rows if row["step"]]
    began = rows[0]["time/seconds"]
    return {
        "arm": arm,
        "seed": seed,
        "seconds": sum(row["time/step"] for row in learned) / len(learned),
        "with_evaluations": (rows[-1]["time/seconds"] - began) / len(learned),
        "computing": cpu / (time.monotonic() - wall),
        "processor": cpu / len(learned),
        "curve": {row["step"]: row["eval/success"] for row in rows if "eval/success" in row},
        "clock": {row["step"]: row["time/seconds"] - began for row in rows},
        "episodes": len(episodes),
        "turns": sum(len(each.turns) for each in episodes) / len(episodes),
        "failed": sum(isinstance(each.outcome, Failure) for each in episodes),
        "mixed": sum(len(set(versions(each))) > 1 for each in episodes) / len(episodes),
        "age": sum(row.get("gap/age_mean", 0.0) for row in learned) / len(learned),
        "oldest": max(row.get("gap/age_max", 0.0) for row in learned),
        "weight": median(row.get("importance/weight", 1.0) for row in learned),
        "capped": sum(row.get("importance/capped_fraction", 0.0) for row in learned) / len(learned),
    }


def versions(trajectory: Trajectory) -> list[int]:
    """Return the version of the weights that each token of `trajectory` was sampled with."""
    return [version for turn in trajectory.turns for version in token_versions(turn.completion)]


def play(place: Path, arm: str, seed: int, steps: int) -> dict[str, Any]:
    """Return what `train` returns, in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--only",
        arm,
        str(seed),
        "--steps",
        str(steps),
        "--runs",
        str(place),
    ]
    log = place / f"{seed}-{arm}.log"
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=out, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"arm {arm} of seed {seed}: got exit {done.returncode}; see the end of {log}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if arm != "start":
        print(
            f"seed {seed}, {arm:8}: {found['seconds']:5.2f} s a step, {found['processor']:4.2f} s of the processor, "
            f"success {list(found['curve'].values())[-1]:.3f}",
            flush=True,
        )
    return found


def play_all(
    place: Path, seeds: Sequence[int], arms: Sequence[str], steps: int, at_once: int
) -> list[dict[str, Any]]:
    """Return what all arms came to: the synchronous ones, which mostly wait, side by side, of the others `at_once`."""
    with ThreadPoolExecutor(at_once) as few, ThreadPoolExecutor(2 * len(seeds)) as many:
        list(few.map(lambda seed: play(place, "start", seed, steps), seeds))
        waiting = [
            (many if arm in (LOCKSTEP, SYNCHRONOUS) else few).submit(play, place, arm, seed, steps)
            for arm in arms
            for seed in seeds
        ]
        return [each.result() for each in waiting]


def values(rows: Sequence[dict[str, Any]], arm: str, name: str) -> list[float]:
    """Return number `name` of `arm`, by seed; of a curve its last."""
    found = [row[name] for row in sorted(rows, key=lambda row: row["seed"]) if row["arm"] == arm]
    return [list(each.values())[-1] if isinstance(each, dict) else each for each in found]


def ratios(rows: Sequence[dict[str, Any]], slow: str, quick: str, name: str = "seconds") -> list[float]:
    """Return how many times as long `slow` took as `quick`, by seed."""
    return [a / b for a, b in zip(values(rows, slow, name), values(rows, quick, name), strict=True)]


def tell(rows: Sequence[dict[str, Any]], arms: Sequence[str]) -> dict[str, Any]:
    """Print the table and return each arm against synchronous training."""
    print(
        "| staleness | s a step | times synchronous | with evaluations | computing | success at the end | difference | "
        "age of a token, oldest | mixed episodes | weight, capped | failures |\n|" + "---|" * 11
    )
    found: dict[str, Any] = {}
    for arm in sorted(set(arms) - {LOCKSTEP}):
        own = ratios(rows, SYNCHRONOUS, arm)
        whole = median(ratios(rows, SYNCHRONOUS, arm, "with_evaluations"))
        ends = values(rows, arm, "curve")
        pairs = zip(values(rows, SYNCHRONOUS, "curve"), ends, strict=True)
        lost = estimate([[after - before for before, after in pairs]], 0.9)
        found[arm] = {
            "ratio": median(own), "least": min(own), "most": max(own), "with_evaluations": whole,
            "difference": lost.mean, "low": lost.low, "high": lost.high, "is_as_good": lost.is_within(TOLERANCE),
            "is_fast": median(own) >= LEAST_RATIO,
            "is_bounded": max(values(rows, arm, "oldest")) <= int(arm) and not any(values(rows, arm, "failed")),
        }  # fmt: skip
        print(
            f"| {arm} | {median(values(rows, arm, 'seconds')):.2f} | "
            f"{median(own):.2f} [{min(own):.2f}, {max(own):.2f}] | {whole:.2f} | "
            f"{median(values(rows, arm, 'computing')):.0%} | {mean(ends):.3f} | "
            f"{lost.mean:+.3f} [{lost.low:+.3f}, {lost.high:+.3f}] | {mean(values(rows, arm, 'age')):.2f}, "
            f"{max(values(rows, arm, 'oldest')):.0f} | {mean(values(rows, arm, 'mixed')):.1%} | "
            f"{mean(values(rows, arm, 'weight')):.3f}, {mean(values(rows, arm, 'capped')):.2%} | "
            f"{sum(values(rows, arm, 'failed')):.0f} |"
        )
    if LOCKSTEP in arms:
        print(f"lockstep: {median(values(rows, LOCKSTEP, 'seconds')):.2f} s a step")
    return found


def draw(rows: Sequence[dict[str, Any]], arms: Sequence[str], picture: Path) -> None:
    """Draw mean success over steps and over seconds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(10, 3.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    by_step: Any = figure.add_subplot(1, 2, 1)
    by_clock: Any = figure.add_subplot(1, 2, 2, sharey=by_step)
    for arm in sorted(set(arms) - {LOCKSTEP}):
        own = [row for row in rows if row["arm"] == arm]
        steps = list(own[0]["curve"])
        means = [100 * sum(row["curve"][step] for row in own) / len(own) for step in steps]
        clock = [sum(row["clock"][step] for row in own) / len(own) for step in steps]
        label = f"staleness {arm}"
        by_step.plot([int(step) for step in steps], means, marker="o", markersize=3, label=label)
        by_clock.plot(clock, means, marker="o", markersize=3, label=label)
    by_step.set(xlabel="step of 64 episodes", ylabel="held-out success (%)")
    by_clock.set(xlabel="seconds, evaluations included")
    by_clock.legend(frameon=False, fontsize=8)
    for axes in (by_step, by_clock):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Software": "quintain"})


def main() -> None:
    """Train, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=ARMS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--at-once", type=int, default=3, help="asynchronous arms that train side by side")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--picture", type=Path, help="file to draw the learning curves into")
    parser.add_argument("--runs", type=Path, help="folder to keep the runs in")
    parser.add_argument(
        "--only", nargs=2, metavar=("ARM", "SEED"), help="train this one here, and print its line"
    )
    arguments = parser.parse_args()
    if arguments.only is not None:
        arm, seed = arguments.only[0], int(arguments.only[1])
        folder = arguments.runs / f"{seed}-{arm}"
        with redirect_stdout(sys.stderr):
            found = prepare(folder, seed) if arm == "start" else train(folder, arm, seed, arguments.steps)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as scratch:
        place = arguments.runs or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        rows = play_all(place, arguments.seeds, arguments.arms, arguments.steps, arguments.at_once)
    verdict = tell(rows, arguments.arms) if len(arguments.seeds) > 1 else {}
    if arguments.json:
        arguments.json.write_text(json.dumps({"verdict": verdict, "rows": rows}, indent=1) + "\n")
    if arguments.picture:
        draw(rows, arguments.arms, arguments.picture)


if __name__ == "__main__":
    main()
