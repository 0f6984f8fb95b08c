"""Does what Paprika learns in some families of tasks help in one that it was not trained on, and does its choice help?

    python evidence/studies/families.py [--seeds 1 2 3 4] [--runs FOLDER] [--only held|kinds]

A small model imitates demonstrations of an expert that errs in a fifth of its turns, in all four families, so that it
can act in each, and poorly. "Held out" therefore means held out of Paprika's training, as in the paper, whose base
model can act everywhere. All arms of a seed go on from this start.

`held`: Paprika trains on three families, each held out in turn, and once on all four. Success is that on held-out
tasks of each family. Told are, over seeds, with 95 % t intervals of paired differences:

1. what it gains on the families that it was trained on: did it learn at all?
2. what it gains on the family that was held out, each and on the mean of the four;
3. what it gains when all four are trained on, the ceiling.

Episodes are ranked by success alone, for in riddles as small as these the shorter of two solved ones is the luckier
guess.
Something was learned if the interval of 1 is above 0; transfer is shown if that of 2, on the mean, is.

`kinds`: on the table of the row's signature, where success is computed exactly and a seed takes seconds. Three kinds of
tasks can be learned (guessing, near and far sokoban), others are solved from the start or hopeless: one of each, then
four and three. The paper's bandit against kinds drawn evenly, at equally many episodes (40 rounds of 64). Told is the
difference in mean success on what can be learned, and which share of the tasks was of it; the choice is shown to help
if the interval of the difference is above 0.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np

import quintain
from quintain.api import evaluate
from quintain.curriculum.levels import Chooser, Optimist, level_of
from quintain.methods.imitation import paprika
from quintain.methods.method import CombinedState
from quintain.types import Group, derive_seed
from quintain_evidence.experiments.imitation import paprika as table
from quintain_evidence.labs.levels import levels
from quintain_evidence.labs.observed import play_games
from quintain_evidence.labs.rounds import train_rounds
from quintain_evidence.layers.inference import estimate

FAMILIES = {
    "arms": "bandit?arms=2&pulls=5&gap=1&reward=sparse",
    "mastermind": "bandit?mode=mastermind&pegs=2&colors=3&reward=sparse",
    "twenty": "twenty?things=4&properties=3",
    "guess": "guess?high=12&max_turns=4",
}
START: Mapping[str, Any] = {
    "model": "mini?tokens=words",
    "demonstrations": 1000,
    "expert_noise": 0.2,
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
    "prefers_short": False,
    "task_offset": 100_000,
    "eval_every": 12,
    "eval_start": False,
    "eval_episodes": 1,
    "max_turn_tokens": 24,
}
HELD_OUT = 150
"""Held-out tasks of a family."""
MIXES = ((1, 1), (4, 3))
"""Kinds on the table that are solved and hopeless, beside three that can be learned."""
OF_KIND = 16
"""Tasks of a kind on the table."""
Rates = Mapping[str, float]


def mix(specs: Iterable[str]) -> str:
    """Return the mixture of `specs`."""
    return "mix:" + ",".join(specs)


def trained(place: Path, name: str, method: str, seed: int, **fields: Any) -> Path:
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


def told(what: str, values: Iterable[float]) -> None:
    """Print a line of the table."""
    found = estimate([list(values)])
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


class Counted:
    """A chooser whose choices are counted, by kind: ``Counted(Optimist())``."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.counts: Counter[str] = Counter()

    def choose(self, levels: Sequence[str], count: int, seed: int) -> list[str]:
        """See `Chooser.choose`."""
        return self.chooser.choose(levels, count, seed)

    def update(self, groups: Sequence[Group]) -> None:
        """See `Chooser.update`."""
        self.counts.update(level_of(group.task) for group in groups)
        self.chooser.update(groups)

    @property
    def share(self) -> float:
        """The share of tasks that were of kinds that can be learned."""
        return sum(self.counts[kind] for kind in table.LEARNABLE) / self.counts.total()


class Evenly:
    """Draws kinds with equal chances, whatever became of them."""

    def choose(self, levels: Sequence[str], count: int, seed: int) -> list[str]:
        """See `Chooser.choose`."""
        return Random(seed).choices(levels, k=count)

    def update(self, groups: Sequence[Group]) -> None:
        """Learn nothing."""


def kinds(count: int) -> None:
    """Let the bandit choose on the table of the signature, and nobody, and print what that changed."""
    for num_solved, num_hopeless in MIXES:
        names = [
            *(f"solved {n}" for n in range(num_solved)),
            *(f"hopeless {n}" for n in range(num_hopeless)),
            *table.LEARNABLE,
        ]
        rows = np.array([compared(names, seed) for seed in range(count)])
        start, chosen, even, chosen_share, even_share = rows.T
        print(
            f"\n{num_solved} solved, {num_hopeless} hopeless, 3 that can be learned; {count} seeds\n\n"
            "| | mean, 95 % t interval |\n|---|---|"
        )
        told("success at the start", start)
        told("success, the bandit choosing", chosen)
        told("success, kinds drawn evenly", even)
        told("the bandit over drawn evenly", chosen - even)
        told("share of tasks that can be learned, the bandit choosing", chosen_share)
        told("the same, drawn evenly", even_share)


def compared(names: Sequence[str], seed: int) -> tuple[float, float, float, float, float]:
    """Return success at the start, chosen and drawn evenly, and the shares of tasks that can be learned."""
    own = derive_seed("kinds", seed)
    near = levels(derive_seed(own, "near"), OF_KIND, least=1, most=3)
    far = levels(derive_seed(own, "far"), OF_KIND, least=4, most=9)
    begun = table.starting_table(own, 40)
    found = [table.learnt(begun, near, far)]
    shares: list[float] = []
    for chooser in (Optimist(), Evenly()):
        counted = Counted(chooser)
        config = paprika.Config(
            tasks=4, group_size=16, compares_ends=True, oversample_factor=len(names) * OF_KIND // 4
        )
        made = paprika.method(config)
        made = replace(
            made,
            collect=paprika.curious(counted, config.tasks, config.group_size, config.reach),
            state=CombinedState(counted),
            update=replace(made.update, num_epochs=4),
        )
        end = train_rounds(
            begun,
            made,
            num_rounds=40,
            seed=own,
            rate=0.3,
            pool=table.tasks(names, {"near": near, "far": far}, OF_KIND),
            play=lambda policy, drawn, size, seed: play_games(
                policy, table.game, drawn, size=size, seed=seed
            ),
        )
        found.append(table.learnt(end.policy, near, far))
        shares.append(counted.share)
    return found[0], found[1], found[2], shares[0], shares[1]


def others(name: str) -> list[str]:
    """Return the families but `name`."""
    return [spec for other, spec in FAMILIES.items() if other != name]


def start(place: Path, seed: int) -> Path:
    """Return the run that imitated all families."""
    return trained(place, f"start-{seed}", "sft", seed, environment=mix(FAMILIES.values()), **START)


def go_on(place: Path, name: str, seed: int, world: str) -> Path:
    """Return the run that goes on from the start of `seed` in `world`."""
    begun = place / f"start-{seed}" / "model"
    return trained(place, name, "paprika", seed, environment=world, model=str(begun), **PAPRIKA)


def main() -> None:
    """Train what is not there yet, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4], help="of `held`")
    parser.add_argument("--tables", type=int, default=10, help="seeds of `kinds`")
    parser.add_argument("--only", choices=("held", "kinds"))
    parser.add_argument(
        "--runs", type=Path, help="folder to keep the runs in; what is there is not made again"
    )
    given = parser.parse_args()
    if given.only != "held":
        kinds(given.tables)
    if given.only != "kinds":
        with tempfile.TemporaryDirectory() as scratch:
            held(given.runs or Path(scratch), given.seeds)


if __name__ == "__main__":
    main()
