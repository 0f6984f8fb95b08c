"""Several agents of a pretrained model learn together, over seeds, with controls: python speed/proof_multiagent.py

What is to be shown, and every setting, is registered in speed/proof_multiagent.toml. For each seed a weak start by
imitation, and from it three arms: the method, the same run with rewards dealt out anew inside each group, and as many
updates of imitation. Parts can be run one at a time (``--seed 2 --arm dealt``); what is done is not run again, what was
broken off goes on. Then a table of held-out success, the differences with Student's t over the seeds and McNemar's test
within them, and one picture of all curves.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from proofs import Difference, compare_pairs, options_of, read_solved, require_one_start, train_once

from quintain.dashboard.curve import draw_comparison
from quintain.dashboard.series import points
from quintain.store import Run

REGISTERED = Path(__file__).with_suffix(".toml")
START = "start"


def folder_of(runs: Path, arm: str, seed: int) -> Path:
    """Return where the run of `arm` with `seed` lies."""
    return runs / f"proof-multiagent-{arm}-{seed}"


def train(runs: Path, plan: Mapping[str, Any], arm: str, seed: int, changes: Mapping[str, Any]) -> None:
    """Train `arm` of `plan` with `seed` unless that is done."""
    folder = folder_of(runs, arm, seed)
    own = {**plan["common"], **(plan[START] if arm == START else {**plan["arms"][arm], **changes})}
    own |= {
        "seed": seed, "task_offset": plan["apart"] * (seed + 1), "runs": runs, "run": folder.name,
        "eval_episodes": plan["held_out"], "eval_every": own["steps"],
    }  # fmt: skip
    if arm != START:
        own["model"] = folder_of(runs, START, seed) / "model"
    recipe = own.pop("recipe")
    train_once(folder, ["train", recipe, *options_of(own)])


def compare(name: str, differences: list[float], least: float, level: float) -> None:
    """Print the mean of `differences` over seeds with Student's t, one-sided."""
    if len(differences) < 2:
        return
    found = Difference.over(differences)
    shown = "shown" if found.is_shown(least, level) else "not shown"
    asked = f": {shown} (registered: at least {100 * least:.0f} points, p < {level})"
    print(f"method - {name}: {found}{asked if name == 'dealt' else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, default=REGISTERED, help="another file than what is registered")
    parser.add_argument("--seeds", type=int, help="so many, from 0 on (default: as registered)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--arm", help="this one alone; its start is made if need be")
    parser.add_argument("--steps", type=int, help="of every arm, beside what is registered")
    parser.add_argument("--held-out", type=int, help="held-out tasks, beside what is registered")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="runs at once (default: one for each core)"
    )
    parser.add_argument(
        "--picture", type=Path, help="file of the picture (default: proof-multiagent.png beside the runs)"
    )
    parser.add_argument(
        "--table", action="store_true", help="train nothing: table and picture of what is done"
    )
    given = parser.parse_args()
    plan = tomllib.loads(given.plan.read_text(encoding="utf-8"))
    if given.arm not in (None, START, *plan["arms"]):
        sys.exit(f"--arm: got {given.arm}; choose from {', '.join((START, *plan['arms']))}")
    seeds = range(given.seeds or plan["seeds"]) if given.seed is None else [given.seed]
    changes = {} if given.steps is None else {"steps": given.steps}
    if given.held_out is not None:
        plan["held_out"] = given.held_out
    if changes or given.held_out is not None or given.plan != REGISTERED:
        print("not as registered: another plan, other steps or held-out tasks")
    given.runs.mkdir(parents=True, exist_ok=True)
    if not given.table:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(lambda seed: train(given.runs, plan, START, seed, {}), seeds))
            arms = [arm for arm in plan["arms"] if given.arm in (None, arm)]
            wanted = [(seed, arm) for seed in seeds for arm in arms]
            list(pool.map(lambda each: train(given.runs, plan, each[1], each[0], changes), wanted))
    report(given.runs, plan, given.picture or given.runs / "proof-multiagent.png")


def report(runs: Path, plan: Mapping[str, Any], picture: Path) -> None:
    """Print the table of what is done in `runs`, and draw its curves."""
    arms = list(plan["arms"])
    curves: dict[str, list[list[dict[str, Any]]]] = {arm: [] for arm in arms}
    differences: dict[str, list[float]] = {arm: [] for arm in (START, *arms[1:])}
    print(
        f"| seed | first task | start | {' | '.join(arms)} | McNemar, method and dealt |\n|{'---|' * (4 + len(arms))}"
    )
    for seed in range(plan["seeds"]):
        places = {arm: folder_of(runs, arm, seed) for arm in arms}
        first = f"| {seed} | {plan['apart'] * (seed + 1):,} |"
        if not all((place / "model").is_dir() for place in places.values()):
            print(f"{first} not done |{' |' * (1 + len(arms))}")
            continue
        require_one_start(list(places.values()), seed)
        found = {arm: read_solved(place) for arm, place in places.items()}
        ends = {arm: fmean(values.values()) for arm, values in found.items()}
        for arm, place in places.items():
            with Run.open(place, writable=False) as run:
                curves[arm].append(run.metrics())
        ends[START] = points(curves["method"][-1], "eval/success")[0][1]
        for arm, values in differences.items():
            values.append(ends["method"] - ends[arm])
        chance = compare_pairs(found["method"], found["dealt"])
        told = " | ".join(f"{100 * ends[arm]:.1f} %" for arm in (START, *arms))
        print(f"{first} {told} | p = {chance:.2g} |")
    if not curves["method"]:
        sys.exit("no seed has all arms")
    for arm, values in differences.items():
        compare(arm, values, plan["least"], plan["level"])
    draw_comparison(curves, picture, num_tasks=plan["held_out"])
    print(f"picture  {picture}")


if __name__ == "__main__":
    main()
