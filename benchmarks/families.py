"""Does what Paprika learns in some families of tasks help in one that it was not trained on, and does its choice help?

    python benchmarks/families.py [--seeds 1 2 3 4] [--runs FOLDER] [--only held|kinds]

A small model imitates demonstrations of an expert that errs in a fifth of its turns, in all four families, so that it
can act in each, and poorly. "Held out" therefore means held out of Paprika's training, as in the paper, whose base
model can act everywhere. All arms of a seed go on from this start.

`held`: Paprika trains on three families, each held out in turn, and once on all four. Success is that on held-out
tasks of each family. Told are, over seeds, with 95 % t intervals of paired differences:

1. what it gains on the families that it was trained on: did it learn at all?
2. what it gains on the family that was held out, each and on the mean of the four;
3. what it gains when all four are trained on, the ceiling.

Something was learned if the interval of 1 is above 0; transfer is shown if that of 2, on the mean, is.

`kinds`: two of the families with one that is hopeless (a number up to 99,999 in two guesses) and one that is solved
from the start (a number from 1 to 1). The paper's bandit against tasks as the mixture deals them, evenly, at equally
many episodes. Told is the difference in success on the two families that can be learned, and which share of the
episodes was of them. The choice is shown to help if the interval of the difference is above 0.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import quintain
from quintain.api import evaluate
from quintain.benchmarks.evidence.inference import estimate
from quintain.methods.imitation import paprika
from quintain.methods.method import Folds, Rounds, grouped
from quintain.store.run import Run

FAMILIES = {
    "arms": "bandit?arms=2&pulls=5&gap=1&reward=sparse",
    "mastermind": "bandit?mode=mastermind&pegs=2&colors=3&reward=sparse",
    "twenty": "twenty?things=4&properties=3",
    "guess": "guess?high=12&max_turns=4",
}
LEARNABLE = ("twenty", "guess")
HOPELESS, SOLVED = "guess?high=99999&max_turns=2", "guess?high=1"
START: Mapping[str, Any] = {
    "model": "mini?tokens=words",
    "demonstrations": 1000,
    "mistakes": 0.2,
    "steps": 350,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "eval_every": 350,
    "eval_start": False,
    "eval_episodes": 1,
    "max_turn_tokens": 24,
}
PAPRIKA: Mapping[str, Any] = {
    "demonstrations": 0,
    "steps": 12,
    "tasks": 16,
    "group_size": 8,
    "num_minibatches": 4,
    "learning_rate": 2e-4,
    "lr_schedule": "linear",
    "compares_ends": True,
    "first_task": 100_000,
    "eval_every": 12,
    "eval_start": False,
    "eval_episodes": 1,
    "max_turn_tokens": 24,
}
HELD_OUT = 150
"""Held-out tasks of a family."""
Rates = Mapping[str, float]
Making = str | Callable[[paprika.Config], Rounds]
"""a method by name, or what makes it"""


def mix(specs: Iterable[str]) -> str:
    """Return the mixture of `specs`."""
    return "mix:" + ",".join(specs)


def evenly(config: paprika.Config) -> Rounds:
    """Return Paprika without its choice of kinds."""
    return replace(
        paprika.method(config), collect=grouped(config.tasks, config.group_size), state=Folds(None)
    )


def trained(place: Path, name: str, method: Making, seed: int, **fields: Any) -> Path:
    """Return the run `name`, made unless it is there."""
    folder = place / name
    if not (folder / "model").exists():
        quintain.train(method, run=name, root=place, seed=seed, replace=True, **fields)
    return folder


def success(folder: Path) -> Rates:
    """Return the success of a run on held-out tasks of each family; measured once and kept beside the run."""
    kept = folder.with_suffix(".json")
    if not kept.exists():
        rates = {
            name: evaluate(folder / "model", spec, episodes=HELD_OUT)[0].success
            for name, spec in FAMILIES.items()
        }
        kept.write_text(json.dumps(rates))
    return json.loads(kept.read_text())


def share_learnable(folder: Path) -> float:
    """Return the share of a run's training episodes that were of a family that can be learned."""
    with Run.open(folder, writable=False) as run:
        played = [t.task.environment for t in run.trajectories(phase="train")]
    known = {name for family in LEARNABLE for name in (FAMILIES[family], FAMILIES[family].partition("?")[0])}
    return fmean(kind in known for kind in played)


def told(what: str, values: Sequence[float]) -> None:
    """Print a line of the table."""
    found = estimate([values])
    print(f"| {what} | {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}] |", flush=True)


def held(place: Path, seeds: Sequence[int]) -> None:
    """Hold each family out in turn, and print what was gained."""
    rows: list[tuple[Rates, dict[str, Rates], Rates]] = []
    for seed in seeds:
        begun = start(place, seed)
        without = {
            name: success(go_on(place, f"without-{name}-{seed}", seed, mix(others(name))))
            for name in FAMILIES
        }
        rows.append(
            (success(begun), without, success(go_on(place, f"all-{seed}", seed, mix(FAMILIES.values()))))
        )
    print("| family | start | trained on the others | trained on all four |\n|---|---|---|---|")
    for name in FAMILIES:
        at_start, left_out, taught = (
            fmean(values)
            for values in zip(*((a[name], b[name][name], c[name]) for a, b, c in rows), strict=True)
        )
        print(f"| {name} | {at_start:.3f} | {left_out:.3f} | {taught:.3f} |")
    print("\n| gain over the start | mean, 95 % t interval over seeds |\n|---|---|")
    told(
        "families trained on, without the fourth",
        [
            fmean(b[out][name] - a[name] for out in FAMILIES for name in FAMILIES if name != out)
            for a, b, _ in rows
        ],
    )
    told("families trained on, all four", [fmean(c[name] - a[name] for name in FAMILIES) for a, _, c in rows])
    told("the family held out", [fmean(b[name][name] - a[name] for name in FAMILIES) for a, b, _ in rows])
    for name in FAMILIES:
        told(f"{name}, held out", [b[name][name] - a[name] for a, b, _ in rows])
        told(f"{name}, among all four", [c[name] - a[name] for a, _, c in rows])


def kinds(place: Path, seeds: Sequence[int]) -> None:
    """Let the bandit choose, and nobody, and print what that changed."""
    world = mix([*(FAMILIES[name] for name in LEARNABLE), HOPELESS, SOLVED])
    rows: list[tuple[float, float, float]] = []
    shares: list[tuple[float, float]] = []
    for seed in seeds:
        begun = start(place, seed)
        chosen = go_on(place, f"chosen-{seed}", seed, world)
        dealt = go_on(place, f"dealt-{seed}", seed, world, evenly)
        ends = [success(folder) for folder in (begun, chosen, dealt)]
        first, second, third = (fmean(rates[name] for name in LEARNABLE) for rates in ends)
        rows.append((first, second, third))
        shares.append((share_learnable(chosen), share_learnable(dealt)))
    chose, even = (fmean(values) for values in zip(*shares, strict=True))
    print(
        f"\nshare of tasks that can be learned: {chose:.2f} where the bandit chose, {even:.2f} as they were dealt"
    )
    print("\n| success on what can be learned | mean, 95 % t interval over seeds |\n|---|---|")
    told("gain, the bandit choosing", [b - a for a, b, _ in rows])
    told("gain, as dealt", [c - a for a, _, c in rows])
    told("the bandit over as dealt", [b - c for _, b, c in rows])


def others(name: str) -> list[str]:
    """Return the families but `name`."""
    return [spec for other, spec in FAMILIES.items() if other != name]


def start(place: Path, seed: int) -> Path:
    """Return the run that imitated all families."""
    return trained(place, f"start-{seed}", "sft", seed, environment=mix(FAMILIES.values()), **START)


def go_on(place: Path, name: str, seed: int, world: str, method: Making = "paprika") -> Path:
    """Return the run that goes on from the start of `seed` in `world`."""
    begun = place / f"start-{seed}" / "model"
    return trained(place, name, method, seed, environment=world, model=str(begun), **PAPRIKA)


def main() -> None:
    """Train what is not there yet, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--only", choices=("held", "kinds"))
    parser.add_argument(
        "--runs", type=Path, help="folder to keep the runs in; what is there is not made again"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = given.runs or Path(scratch)
        if given.only != "kinds":
            held(place, given.seeds)
        if given.only != "held":
            kinds(place, given.seeds)


if __name__ == "__main__":
    main()
