"""Reflexion on a real model: SmolLM2 walks in BabyAI's rooms, says why it failed, and is told so the next time.

What is collected is a run: it has every attempt, and in front of each attempt after the first the lesson that was
sampled, whose tokens can be imitated.
"""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain import api
from quintain.agents.reflexion import MAX_LESSONS
from quintain.data.pack import micro_batches
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.catalog import find
from quintain.store.run import Run
from quintain.types import Score, Trajectory, Turn
from quintain.warm_start.demonstrations import write_run
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
WORLD = "babyai/GoToRedBallNoDists"
TASKS, ROUNDS, REPEATS = 2, 2, 1
LESSON = "agent/reflection"


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Collect attempts and lessons, write them down and read them again."""
    found, tokenizer = api.collect(
        WORLD, MODEL, episodes=TASKS, attempts=ROUNDS, reflect=True, max_repeats=REPEATS, seed=1
    )
    folder = runs / "rounds"
    shutil.rmtree(folder, ignore_errors=True)
    settings = {"environment": WORLD, "agent": MODEL, "seed": 1, "split": "train", "attempts": ROUNDS}
    write_run(found, tokenizer, folder, settings, make_environment=find(WORLD))
    with Run.open(folder, writable=False) as run:
        kept = list(run.trajectories())
    lessons = [turn for t in kept for turn in t.turns if turn.seat == LESSON]
    counts = Counter(t.task.id for t in kept)
    failed = [t for t in kept if not t.is_success]
    later = [t for t in kept if not t.group.endswith("/attempt 1")]
    told = [is_told(t, str(tokenizer.decode(list(first_act(t).prompt_ids)))) for t in later]
    samples = example_samples([as_example(t) for t in later])
    weighed = sum(float(sample.loss_weight.sum()) for sample in samples)
    checks = [
        Check(
            name="journal",
            has_passed=kept == found and all(isinstance(t.outcome, Score) for t in kept),
            detail=f"{len(kept)} attempts at {len(counts)} tasks, as they were played",
        ),
        Check(
            name="rounds",
            has_passed=all(is_last(t, kept) for t in kept if t.is_success) and max(counts.values()) <= ROUNDS,
            detail=f"{sum(t.is_success for t in kept)} tasks solved, none attempted again",
        ),
        Check(
            name="lessons",
            has_passed=bool(lessons) and all(told),
            detail=f"{len(lessons)} lessons sampled, each in the prompt of its next attempt, {MAX_LESSONS} at most",
        ),
        Check(
            name="to be imitated",
            has_passed=weighed > 0 and bool(micro_batches(samples, max_tokens=8192)),
            detail=f"{weighed:g} tokens of attempts and lessons have weight",
        ),
    ]
    figures = {
        "solved": float(sum(t.is_success for t in kept)),
        "failed attempts": float(len(failed)),
        "lessons": float(len(lessons)),
        "cut for repeating": float(sum(t.stop == "cut" for t in kept)),
    }
    return checks, figures


def first_act(trajectory: Trajectory) -> Turn:
    """Return the turn that it acts in first."""
    return next(turn for turn in trajectory.turns if not turn.is_internal)


def is_told(trajectory: Trajectory, prompt: str) -> bool:
    """Return whether the lesson that the attempt begins with stands in its first `prompt`; one may be empty."""
    lesson = next((turn for turn in trajectory.turns if turn.seat == LESSON), None)
    return lesson is not None and " ".join(lesson.action.text.split()) in prompt


def is_last(solved: Trajectory, kept: Sequence[Trajectory]) -> bool:
    """Return whether no attempt at its task comes after a `solved` one."""
    own = [t for t in kept if t.task.id == solved.task.id]
    return own[-1] is solved
