"""ReST-MCTS*, iteration by iteration: with values, without them, and no trees at as many environment steps.

    python evidence/studies/tree_rounds.py [--seeds 1 2 3] [--exploration 0.7] [--runs FOLDER]

A small model imitates the expert of levels that it then seldom solves, and goes on from there in three arms: search
trees under a value model that learns from round to round (`rest_mcts`), trees under none (`--has-values false`), and
episodes from the first state on (`rft`, a round of ReST with the same rule of what is imitated). A round is 32 tasks
in all arms; plain episodes are three of each, which take about as many steps as a tree.

Iteration i is the policy and the values after i rounds. Its row says which share of the tasks of the next round was
solved, in any episode; how far its values were from those that the new trees imply, before it learned from these; and
its success on held-out levels. Means over seeds with t intervals, then paired differences at the last iteration.
`--exploration` is c of the bound: with .7 trees of this size are gone through nearly evenly, whatever their values.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import quintain
from quintain.store.run import Run
from quintain_evidence.layers.inference import estimate

WORLD = "sokoban?size=5&boxes=1&walls=3&scramble=30&view=grid"
ROUNDS = 5
START: Mapping[str, Any] = {
    "model": "micro?tokens=words",
    "agent": "choice",
    "demonstrations": 200,
    "steps": 125,
    "batch_size": 16,
    "learning_rate": 6e-3,
    "eval_every": 125,
    "eval_start": False,
    "eval_episodes": 1,
}
SHARED: Mapping[str, Any] = {
    "agent": "choice",
    "demonstrations": 0,
    "steps": ROUNDS,
    "tasks": 32,
    "num_epochs": 2,
    "num_minibatches": 4,
    "learning_rate": 1e-3,
    "task_offset": 100_000,
    "eval_every": 1,
    "eval_episodes": 200,
}
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "values": ("rest_mcts", {}),
    "no values": ("rest_mcts", {"has_values": False}),
    "plain": ("rft", {"group_size": 3, "keep": 2}),
}
Table = Mapping[str, Sequence[float]]
"""what was measured → its value at iterations 0, 1, …"""


def table(place: Path, arm: str, seed: int, exploration: float) -> Table:
    """Return what `arm` shows by iteration; it is trained unless its run is there."""
    method, own = ARMS[arm]
    searches = method == "rest_mcts"
    begun = place / f"start-{seed}"
    folder = place / f"{arm.replace(' ', '-')}-{f'{exploration}-' if searches else ''}{seed}"
    if not (begun / "model").exists():
        quintain.train("sft", environment=WORLD, run=begun.name, root=place, replace=True, seed=seed, **START)
    if not (folder / "model").exists():
        fields: dict[str, Any] = {**SHARED, **own, "model": str(begun / "model"), "seed": seed}
        if searches:
            fields["exploration"] = exploration
        quintain.train(method, environment=WORLD, run=folder.name, root=place, replace=True, **fields)
    with Run.open(folder, writable=False) as run:
        rows = list(run.metrics())
        rounds = range(1, ROUNDS + 1)
        solved = [num_solved(run, step) for step in rounds]
    return {
        "solved in training": solved,
        "error of values": [float(row["mcts/value_error"]) for row in rows[1:]]
        if method == "rest_mcts"
        else [],
        "held-out success": [float(row["eval/success"]) for row in rows],
        "steps of a round": [
            float(rows[step]["total/turns"]) - float(rows[step - 1]["total/turns"]) for step in rounds
        ],
    }


def num_solved(run: Run, step: int) -> float:
    """Return the share of the tasks of a round of which some episode was solved."""
    tasks: dict[str, bool] = {}
    for episode in run.trajectories(step=step, phase="train"):
        tasks[episode.task.id] = tasks.get(episode.task.id, False) or episode.is_success
    return fmean(tasks.values())


def shown(values: Sequence[float], digits: int = 3, sign: str = "") -> str:
    """Return the mean of `values` with its interval."""
    found = estimate([values])
    mean, low, high = (f"{value:{sign}.{digits}f}" for value in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def main() -> None:
    """Train what is not there yet, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument(
        "--runs", type=Path, help="folder to keep the runs in; what is there is not made again"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = given.runs or Path(scratch)
        found = {arm: [table(place, arm, seed, given.exploration) for seed in given.seeds] for arm in ARMS}
    for what in ("solved in training", "error of values", "held-out success", "steps of a round"):
        arms = [arm for arm in ARMS if found[arm][0][what]]
        print(f"\n| iteration: {what} | {' | '.join(arms)} |\n|---|{'---|' * len(arms)}")
        for number in range(len(found[arms[0]][0][what])):
            digits = 0 if what == "steps of a round" else 3
            cells = [shown([each[what][number] for each in found[arm]], digits) for arm in arms]
            print(f"| {number} | {' | '.join(cells)} |")
    print("\n| difference at the last iteration | values over none | values over plain |\n|---|---|---|")
    for what in ("solved in training", "held-out success"):
        cells = [
            shown(
                [a[what][-1] - b[what][-1] for a, b in zip(found["values"], found[arm], strict=True)],
                sign="+",
            )
            for arm in ("no values", "plain")
        ]
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
