"""RL of Thoughts on a real model: SmolLM2 does sums in steps and rates itself; a navigator learns what it does next.

A run of two steps, resumed between them; the model's weights stay as they are, the navigator is computed anew from what
was recorded, and then steers the model from its file. What the model writes is read as it is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import torch

from quintain.agents.navigated import read_asked
from quintain.learning.saved import load_policy
from quintain.methods.search.rlot import FILE, Config, Navigation, read_transitions
from quintain.models.fingerprint import fingerprint
from quintain.models.navigator import load_navigator
from quintain.store.run import Run
from quintain.types import Group, Score, as_text
from quintain.worlds.solver.chain import read_ratings
from quintain.worlds.solver.game import SOLVES
from quintain.worlds.solver.problem import read_integers
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import perform, perform_in_two

MODEL = "smollm2"
WORLD = "solver?kind=chain&by=model&size=2"
STEPS, TASKS, SECONDS = 2, 4, 900.0


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Learn a navigator, stop, go on, compute it anew, and let it steer the model."""
    folder = runs / "rlot"
    failed = perform_in_two(
        folder,
        ["rlot", "--model", MODEL, "--environment", WORLD, "--agent", "text", "--demonstrations", "0", "--tasks",
         str(TASKS), "--eval-every", str(STEPS), "--eval-episodes", "2", "--eval-start", "false",
         "--max-turn-tokens", "24"],
        steps=STEPS, seconds=SECONDS,
    )  # fmt: skip
    steering = f"navigated?file={folder / FILE}+text?max_tokens=24"
    failed = failed or perform(
        ["eval", MODEL, "--environment", WORLD, "--agent", steering, "--episodes", "1"],
        SECONDS,
    )
    if failed:
        return [Check(name="runs", has_passed=False, detail=failed)], {}
    with Run.open(folder, writable=False) as run:
        weights = run.weights()
        steered = [t for t in run.trajectories() if t.task.is_held_out]
        by_step = [[*run.trajectories(step=step, phase="train")] for step in range(1, STEPS + 1)]
    config = Config(tasks=TASKS)
    again = Navigation(config, config.seed)
    for episodes in by_step:
        again.update([Group(task=t.task, trajectories=(t,)) for t in episodes])
    kept = load_navigator(folder / FILE).state_dict()
    played = [t for episodes in by_step for t in episodes]
    choices = [
        (asked, turn.action.text)
        for t in [*played, *steered]
        for turn in t.turns
        if (asked := read_asked(as_text(turn.observation))) is not None
    ]
    said = [turn for t in played for turn in t.turns if turn.speaker == SOLVES]
    rated = [read_integers(turn.action.text) for turn in said if "Rate from 1" in as_text(turn.observation)]
    checks = [
        Check(
            name="weights",
            has_passed=set(weights.values()) <= {fingerprint(load_policy(MODEL).model)},
            detail=f"{len(set(weights.values()))} fingerprint after {len(weights)} steps, that of the model as it came",
        ),
        Check(
            name="steers",
            has_passed=len(choices) > TASKS * STEPS and all(block in asked.legal for asked, block in choices),
            detail=f"{len(choices)} blocks chosen, each one that could be, in {len(played) + len(steered)} episodes",
        ),
        Check(
            name="solver",
            has_passed=bool(rated) and all(isinstance(t.outcome, Score) for t in [*played, *steered]),
            detail=f"{len(said)} answers of the model; {sum(len(each) >= 7 for each in rated)} of {len(rated)} ratings "
            "have seven numbers, the others are filled up with 2",
        ),
        Check(
            name="navigator",
            has_passed=all(
                torch.equal(kept[name], each) for name, each in again.navigator.state_dict().items()
            ),
            detail=f"the same, computed anew of {sum(len(read_transitions(t)) for t in played)} recorded blocks",
        ),
    ]
    return checks, {
        "success": fmean(float(t.is_success) for t in played),
        "score of the model's ratings": fmean(
            fmean(read_ratings(" ".join(map(str, each)))) for each in rated
        ),
    }
