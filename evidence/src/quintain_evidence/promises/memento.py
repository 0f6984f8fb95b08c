"""Memento on a real model: SmolLM2 solves sums with names and is told cases of its own; its weights stay as they are.

A run of two steps, resumed between them, and the model beside its cases afterwards. What it writes is nobody's test
data: the cases are its own words.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain.agents.cased import FAILED, WORKED, load_cases
from quintain.learning.saved import load_policy
from quintain.models.fingerprint import fingerprint
from quintain.store.run import Run
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import perform_in_two

MODEL = "smollm2"
WORLD = "calc?steps=1&names=2&digits=1&checks=0&calculator=false"
STEPS, TASKS, SECONDS = 2, 6, 900.0


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Learn cases, stop, go on, and read them beside the model."""
    folder = runs / "memento"
    failed = perform_in_two(
        folder,
        ["memento", "--model", MODEL, "--environment", WORLD, "--agent", "react", "--demonstrations", "0",
         "--tasks", str(TASKS), "--eval-every", "1", "--eval-episodes", "2", "--eval-start", "false",
         "--max-turn-tokens", "32"],
        steps=STEPS, seconds=SECONDS,
    )  # fmt: skip
    if failed:
        return [Check(name="runs", has_passed=False, detail=failed)], {}
    policy = load_policy(MODEL)
    memory = load_cases(folder / "cases", count=4, by="value")
    with Run.open(folder, writable=False) as run:
        weights, kept = run.weights(), [*run.trajectories()]
    train = [t for t in kept if not t.task.is_held_out]
    told = [str(policy.tokenizer.decode(list(t.turns[0].prompt_ids))) for t in kept]
    late = [text for text, t in zip(told, kept, strict=True) if t in train[TASKS:] or t.task.is_held_out]
    sources = {entry.source for entry in memory.bank.entries}
    checks = [
        Check(
            name="weights",
            has_passed=set(weights.values()) <= {fingerprint(policy.model)},
            detail=f"{len(set(weights.values()))} fingerprint after {len(weights)} steps, that of the model as it came",
        ),
        Check(
            name="cases",
            has_passed=len(memory.bank) == STEPS * TASKS and sources == {t.task.id for t in train},
            detail=f"{len(memory.bank)} cases of {STEPS * TASKS} training episodes, none of a held-out task",
        ),
        Check(
            name="told",
            has_passed=bool(late) and all(WORKED in text or FAILED in text for text in late),
            detail=f"{len(late)} episodes after the first step were told cases, evaluations among them",
        ),
        Check(
            name="labels",
            has_passed=len(memory.labels) == 4 * (STEPS - 1) * TASKS,
            detail=f"{len(memory.labels)} labels, four of each episode that was told cases",
        ),
    ]
    solved = sum(entry.value > 0 for entry in memory.bank.entries)
    return checks, {
        "cases": float(len(memory.bank)),
        "solved": float(solved),
        "labels": float(len(memory.labels)),
    }
