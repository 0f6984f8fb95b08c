"""WebDancer's stages one after the other on hopqa, beside ways to leave one out.

    python evidence/studies/web_dancer_chain.py --seeds 1 2 3

Four arms of a seed have the same questions, the same tries of the same erring teacher and the same new model. *chain*
imitates the filtered tries and goes on with RL. The others have no RL: *longer* imitates the filtered tries for as
many further updates as RL takes, *unfiltered* imitates all tries, and *as many* an equal number of all tries, drawn at
random. Held-out success, on the same questions, is printed before imitation, after it and after RL, and then the
differences over seeds with 95 % intervals. Runs stay in the folder --runs, and one that is done is not run again.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import quintain
from quintain.data.pipeline import Pipeline, PipelineResult, as_example, check_stage
from quintain.eval.statistics import wilson
from quintain.methods.imitation import web_dancer
from quintain.methods.loops.on_policy import OnPolicy
from quintain.runs.context import COLD_START
from quintain.store.run import Run
from quintain.types import Trajectory, derive_seed
from quintain.warm_start.start import DEMONSTRATIONS_PER_UPDATE
from quintain.warm_start.untrained import UNTRAINED
from quintain_evidence.layers.inference import estimate

SETTINGS: Mapping[str, Any] = {
    "environment": "hopqa?hops=1&distractors=4&closed=0&rounds=1",
    "model": "micro?tokens=words",
    "agent": "tags",
    "max_turn_tokens": 24,
    "demonstrations": 600,
    "teacher_noise": 0.4,
    "teacher_episodes": 2,
    "imitation_epochs": 14,
    "imitation_lr": 6e-3,
    "tasks": 8,
    "group_size": 8,
    "steps": 120,
    "num_minibatches": 1,
    "learning_rate": 1.5e-3,
    "eval_episodes": 512,
}
METHODS = {
    "chain": "web_dancer",
    "longer": "web_dancer",
    "unfiltered": f"{Path(__file__).resolve()}:unfiltered",
    "as many": f"{Path(__file__).resolve()}:as_many",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an arm came to with one seed."""

    kept: int
    """episodes that were imitated"""
    before: float | None
    imitated: float
    trained: float | None
    """held-out success before imitation, after it, and after RL: the first and the last of the chain alone"""


def unfiltered(config: web_dancer.Config) -> OnPolicy:
    """Return WebDancer without its filters."""
    return choosing(config, everything)


def as_many(config: web_dancer.Config) -> OnPolicy:
    """Return WebDancer which imitates as many tries as its filters leave, but any of them."""

    def choose(shown: Sequence[Trajectory], text: Callable[[Sequence[int]], str]) -> PipelineResult:
        made = web_dancer.method(config).cold_start
        assert made is not None, "WebDancer imitates first"
        num = len(made.choose(shown, text).examples)
        return everything(random.Random(derive_seed("as many", config.seed)).sample(list(shown), num), text)

    return choosing(config, choose)


def everything(shown: Sequence[Trajectory], _text: Callable[[Sequence[int]], str]) -> PipelineResult:
    """Return all of `shown`."""
    return Pipeline(check_stage("everything", "is never left out", lambda _: True)).run(
        list(map(as_example, shown))
    )


def choosing(
    config: web_dancer.Config,
    choose: Callable[[Sequence[Trajectory], Callable[[Sequence[int]], str]], PipelineResult],
) -> OnPolicy:
    """Return WebDancer which imitates what `choose` chooses."""
    made = web_dancer.method(config)
    assert made.cold_start is not None, "WebDancer imitates first"
    return replace(made, cold_start=replace(made.cold_start, choose=choose))


def further_epochs(kept: int) -> int:
    """Return the passes over `kept` episodes that are at least as many updates as RL takes."""
    updates = int(SETTINGS["steps"]) * int(SETTINGS["num_minibatches"])
    return math.ceil(updates / math.ceil(kept / DEMONSTRATIONS_PER_UPDATE))


def performed(arm: str, seed: int, root: Path, kept: int) -> Outcome:
    """Return what `arm` came to with `seed`; it is run where it is not done."""
    name = f"web-dancer-{arm.replace(' ', '-')}-{seed}"
    if not is_done(root / name):
        changes: dict[str, Any] = {"steps": 1}
        if arm == "chain":
            changes = {"eval_every": SETTINGS["steps"], "eval_untrained": True}
        if arm == "longer":
            changes["imitation_epochs"] = SETTINGS["imitation_epochs"] + further_epochs(kept)
        quintain.train(
            METHODS[arm],
            run=name,
            root=root,
            replace=True,
            config={**SETTINGS, "seed": seed, **changes},
        )
    with Run.open(root / name, writable=False) as run:
        rows = [float(row["eval/success"]) for row in run.metrics() if row.get("eval/success") is not None]
        told = {event["kind"]: event["data"] for event in run.events()}
    return Outcome(
        kept=int(told[COLD_START]["data/kept"]),
        before=float(told[UNTRAINED]["eval/success"]) if arm == "chain" else None,
        imitated=rows[0],
        trained=rows[-1] if arm == "chain" else None,
    )


def is_done(folder: Path) -> bool:
    """Return whether the run in `folder` came to its end."""
    if not (folder / "config.json").exists():
        return False
    with Run.open(folder, writable=False) as run:
        return run.status == "done"


def line(arm: str, seed: int, found: Outcome) -> str:
    """Return a row of the table of outcomes."""
    cells = ["-" if each is None else rate(each) for each in (found.before, found.imitated, found.trained)]
    return f"| {seed} | {arm} | {found.kept} | {' | '.join(cells)} |"


def rate(success: float) -> str:
    """Return a share of the held-out questions in %, with its interval."""
    num = int(SETTINGS["eval_episodes"])
    low, high = wilson(round(success * num), num)
    return f"{100 * success:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def compared(found: Mapping[int, Mapping[str, Outcome]]) -> list[str]:
    """Return the differences that are looked at, each with its interval over seeds."""
    ends = [end for arms in found.values() if (end := arms["chain"].trained) is not None]
    others = {arm: [arms[arm].imitated for arms in found.values()] for arm in METHODS}
    differences = {
        "RL, beyond imitation of what was filtered": minus(ends, others["chain"]),
        "RL, beyond as many updates of imitation": minus(ends, others["longer"]),
        "imitation, filtered beyond all": minus(others["chain"], others["unfiltered"]),
        "imitation, filtered beyond as many": minus(others["chain"], others["as many"]),
        "the whole chain, beyond imitation of all": minus(ends, others["unfiltered"]),
    }
    lines: list[str] = []
    for name, values in differences.items():
        seen = estimate([values])
        each = ", ".join(f"{100 * value:+.1f}" for value in values)
        lines.append(
            f"| {name} | {100 * seen.mean:+.1f} [{100 * seen.low:+.1f}, {100 * seen.high:+.1f}] | {each} |"
        )
    return lines


def minus(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Return the differences, seed by seed."""
    return [a - b for a, b in zip(first, second, strict=True)]


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    arguments = parser.parse_args()
    found: dict[int, dict[str, Outcome]] = {}
    print(
        "| seed | arm | imitated episodes | before | after imitation | after RL |\n|---|---|---|---|---|---|"
    )
    for seed in arguments.seeds:
        found[seed] = {}
        for arm in METHODS:
            kept = found[seed]["chain"].kept if arm != "chain" else 0
            found[seed][arm] = performed(arm, seed, arguments.runs, kept)
            print(line(arm, seed, found[seed][arm]), flush=True)
    if len(found) > 1:
        print("\n| difference in points | mean | each seed |\n|---|---|---|", *compared(found), sep="\n")


if __name__ == "__main__":
    main()
