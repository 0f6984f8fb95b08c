"""Reinforcement improves a pretrained model, over seeds: python speed/proof_real.py [--seeds 4] [--picture FILE]

For each seed `quickstart-real` and its control, the same run from the same start with the rewards of each group dealt
out anew; each run is a process of one thread, and as many run at once as there are cores. Runs that are done are not
run again, those that were broken off go on. Then a table of held-out success before and after, the differences with
Student's t over the seeds, and one picture of all curves. `make proof-real` runs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from proofs import Difference, require_one_start, train_once

from quintain.cli.evaluation import arms_of
from quintain.dashboard.curve import draw_comparison
from quintain.dashboard.series import points
from quintain.store import Run

ARMS = {"grpo": "false", "dealt": "true"}
"""name of an arm → whether its rewards are dealt out anew"""
APART = 20_000
"""Tasks between the first ones of two seeds, beyond those that settings were chosen on."""


def folder_of(runs: Path, arm: str, seed: int) -> Path:
    """Return where the run of `arm` with `seed` lies."""
    return runs / f"proof-{arm}-{seed}"


def train(runs: Path, arm: str, seed: int, settings: list[str]) -> None:
    """Train `arm` with `seed` unless that is done."""
    folder = folder_of(runs, arm, seed)
    new = [
        "train", "quickstart-real", "--dealt-out", ARMS[arm], "--seed", str(seed),
        "--task-offset", str(APART * (seed + 1)), "--runs", str(runs), "--run", folder.name, *settings,
    ]  # fmt: skip
    train_once(folder, new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="runs at once (default: one for each core)"
    )
    parser.add_argument(
        "--picture", type=Path, help="file of the picture (default: proof-real.png beside the runs)"
    )
    parser.add_argument(
        "--table", action="store_true", help="train nothing: table and picture of what is done"
    )
    arguments, settings = parser.parse_known_args()
    runs, seeds = arguments.runs, range(arguments.seeds)
    runs.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            wanted = [(runs, arm, seed, settings) for seed in seeds for arm in ARMS]
            list(pool.map(lambda each: train(*each), wanted))
    rows: dict[str, list[dict[str, Any]]] = {}
    configs: dict[str, Any] = {}
    differences: list[float] = []
    print("| seed | first task | start | GRPO | rewards dealt out | difference |\n|---|---|---|---|---|---|")
    for seed in seeds:
        pair = {arm: folder_of(runs, arm, seed) for arm in ARMS}
        if not all((folder / "model").is_dir() for folder in pair.values()):
            print(f"| {seed} | {APART * (seed + 1):,} | not done | | | |")
            continue
        require_one_start(list(pair.values()), seed)
        ends: dict[str, float] = {}
        for arm, folder in pair.items():
            with Run.open(folder, writable=False) as run:
                rows[folder.name], configs[folder.name] = run.metrics(), run.config
            ends[arm] = points(rows[folder.name], "eval/success")[-1][1]
        start = points(rows[pair["grpo"].name], "eval/success")[0][1]
        differences.append(ends["grpo"] - ends["dealt"])
        told = " | ".join(f"{100 * value:.1f} %" for value in (start, ends["grpo"], ends["dealt"]))
        print(f"| {seed} | {APART * (seed + 1):,} | {told} | {100 * differences[-1]:+.1f} |")
    if not rows:
        sys.exit("no pair of runs is done")
    if len(differences) > 1:
        mean = Difference.over(differences)
        chance = 2 * min(mean.chance, 1 - mean.chance)
        print(
            f"mean difference {100 * mean.mean:+.1f} points [{100 * mean.low:.1f}, {100 * mean.high:.1f}], "
            f"p = {chance:.2g}, {mean.num} seeds"
        )
    arms = {name: [rows[run] for run in names] for name, names in arms_of(configs).items()}
    tasks = {int(config["eval_episodes"]) for config in configs.values()}
    picture = arguments.picture or runs / "proof-real.png"
    draw_comparison(arms, picture, num_tasks=tasks.pop() if len(tasks) == 1 else 0)
    print(f"picture  {picture}")


if __name__ == "__main__":
    main()
