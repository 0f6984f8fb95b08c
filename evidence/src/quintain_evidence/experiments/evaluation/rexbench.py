"""RExBench: is a patch judged right that extends the experiment, and wrong whatever else it does?

Six kinds of patch on each of five small experiments: gold, the same in other words and other draws, nothing, a usual
mistake (the baseline contains the sample, a deviation for an error, too few steps, n for n - 1, judged on what was
fitted), the number that gold shows on what can be seen, printed, and the same left in files. A violation is a verdict
that should be another, or gold whose files are not recalled. The control judges by a run on what the agent can see,
with ranges of as many gold runs there, and leaves the results that a patch brings along, on the last three kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from quintain.adapters.rexbench.judging import gold_files, judge, read_number, run_trial
from quintain.adapters.rexbench.layout import Extension, Target, Trial
from quintain.types import derive_seed
from quintain_evidence.labs.extensions import LABEL, MINIS, RUN, TABLE, draw_extension, write_method

KINDS = {
    "gold": True, "rewritten": True, "nothing": False, "near": False, "printed": False, "cached": False,
}  # fmt: skip
"""Kinds of patch, and whether they extend the experiment."""
SHOWN = ("printed", "cached", "near")
"""Kinds that the control judges."""
OPEN = Trial(targets=(Target(low=-1e9, high=1e9, label=LABEL),))


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the counts of all kinds of patch on the same tasks."""
    counts = dict.fromkeys(("trials", "violations", "control_trials", "control_violations"), 0.0)
    margins: list[float] = []
    permuted = judged = 0
    for number in range(int(options["draws"])):
        made = [
            draw_extension(
                name, Random(derive_seed("rexbench", seed, number, name)), gold_runs=int(options["gold_runs"])
            )
            for name in MINIS
        ]
        for place, extension in enumerate(made):
            shown = run_number(extension, gold_files(extension))
            other = made[(place + 1) % len(made)].judging
            for kind, should_pass in KINDS.items():
                files = write_patch(extension, kind, shown)
                verdict = judge(extension, files)
                is_wrong = verdict.is_success != should_pass or (kind == "gold" and verdict.file_recall < 1)
                counts["trials"] += 1
                counts["violations"] += is_wrong
                if kind == "near":
                    margins.append(margin_of(extension, verdict.numbers))
                if kind in SHOWN:
                    counts["control_trials"] += 1
                    counts["control_violations"] += is_near(run_number(extension, files), shown)
                if kind == "gold":
                    judged += 1
                    permuted += judge(replace(extension, judging=other), files).is_success
    return [{**counts, "extra.margin": min(margins), "extra.permuted": permuted / judged}]


def write_patch(extension: Extension, kind: str, shown: float) -> dict[str, str]:
    """Return the repository as a patch of `kind` leaves it; `shown` is what gold shows on what can be seen."""
    before, mini = dict(extension.repository), MINIS[extension.name]
    if kind == "gold":
        return gold_files(extension)
    if kind == "nothing":
        return before
    if kind == "printed":
        return {**before, "method.py": write_method(f"return {shown!r}")}
    if kind == "cached":
        script = RUN.replace(
            'measure(numbers, random.Random(int(open("seed.txt").read())))', "float(open('kept').read())"
        )
        cut = script.index("with open")
        return {
            **before,
            "run_final.py": script[:cut],
            "kept": f"{shown}\n",
            TABLE: f"step,result\n1,{shown:.6f}\n",
        }
    return {**before, "method.py": write_method(mini.rewritten if kind == "rewritten" else mini.near)}


def run_number(extension: Extension, files: Mapping[str, str]) -> float:
    """Return what `files` print on what can be seen."""
    found = read_number(run_trial(extension, files, OPEN).files[""], OPEN.targets[0])
    assert found is not None, f"a patch of {extension.name} prints its result"
    return found


def is_near(number: float, shown: float) -> bool:
    """Return whether `number` is within a hundredth of what gold shows."""
    return abs(number - shown) <= 0.01 * abs(shown)


def margin_of(extension: Extension, numbers: Sequence[float | None]) -> float:
    """Return how far the nearest of `numbers` is from the middle of its range, in half widths; within is below 1."""
    targets = [target for trial in extension.judging.trials for target in trial.targets]
    far = [
        abs(number - (target.low + target.high) / 2) / ((target.high - target.low) / 2)
        for number, target in zip(numbers, targets, strict=True)
        if number is not None
    ]
    return min(far)
