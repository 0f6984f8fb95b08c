"""RCI: does a critique that finds problems lower the error of a whole plan as its recall says, and more than doubt?

Blocks to stack, by one plan a task. A script reads the task and drafts a shortest plan, and leaves a step of it out in
.3 of its drafts, first or later. Asked for problems it finds those of a wrong draft with the recall q, and some in a
right one in .1. What follows from that is w₁ = p (1 - q (1 - p)) + (1 - p) f p. The control finds as many problems, in
any draft alike. The rival takes what most of as many drafts say, two at most, and without critiques; three are printed
beside it. In the null world drafts are right, so that there is nothing to find.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any

import numpy as np

from quintain.agents.rci import ACCEPTED, CRITICISE
from quintain.types import derive_seed, flatten_scored
from quintain.worlds.plan.domains import EMPTY, Case, problem_of
from quintain.worlds.plan.problem import Problem
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold

WRONG, RECALL, ALARMS = 0.3, 0.8, 0.1
DOSES = (0.0, 0.25, 0.5, 0.75, 1.0)
DRAFTS = (2, 3)
ASKED = re.compile(r"<\|(?:user|assistant)\|>")
ON = re.compile(r"\b([a-h]) on ([a-h]|table)\b")


@lru_cache(maxsize=4096)
def read_problem(words: str) -> Problem | None:
    """Return the problem that `words` tell; None where they tell none."""
    goal, _, facts = words.partition(". ")
    wanted, found = ON.findall(goal), ON.findall(facts)
    if not wanted or not found:
        return None
    things = tuple(sorted({block for block, _ in found}))
    clear = [f"{block} clear" for block in things if block not in {below for _, below in found}]
    start = (*(f"{block} on {below}" for block, below in found), *clear, EMPTY)
    return problem_of(
        Case(domain="blocks", things=things, start=start, goal=tuple(f"{a} on {b}" for a, b in wanted))
    )


def draft_plan(problem: Problem, wrong: float, draw: int) -> str:
    """Return a shortest plan, of which one step lacks with the chance `wrong`."""
    rng = Random(derive_seed("draft", draw))
    steps = list(problem.plan(problem.start) or [])
    if rng.random() < wrong and steps:
        del steps[rng.randrange(len(steps))]
    return f"run {'; '.join(steps)}"


def is_right(problem: Problem, draft: str) -> bool:
    """Return whether `draft` reaches the goal."""
    state: int | None = problem.start
    for step in draft.removeprefix("run ").split("; "):
        state = None if state is None else problem.after(state, step)
    return state is not None and problem.is_solved(state)


def say(wrong: float, recall: float, alarms: float, prompt: str, draw: int) -> str:
    """Return a draft, or what is found in the last one."""
    said = [part.removesuffix("<|end|>").strip() for part in ASKED.split(prompt)]
    problem = read_problem(next((part for part in said if part.startswith("Goal: ")), ""))
    if problem is None:
        return "run wait"
    if CRITICISE not in said[-2]:
        return draft_plan(problem, wrong, draw)
    chance = alarms if is_right(problem, said[-3]) else recall
    return "A step lacks." if Random(derive_seed("critique", draw)).random() < chance else ACCEPTED


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return whether each task is solved, with a critique, with doubt at the same rate, and by a majority."""
    world, count = str(options["world"]), int(options["seeds"])
    require_blindfold(Mind(partial(say, WRONG, RECALL, ALARMS)), world, seed=seed, agent="rci+text", num=40)
    rate = WRONG * RECALL + (1 - WRONG) * ALARMS
    method = play(world, seed, count, WRONG, RECALL, ALARMS)
    control = play(world, seed, count, WRONG, rate, rate)
    null = [play(world, seed, count // 4, 0.0, *critic) for critic in ((RECALL, 0.0), (rate, rate))]
    fewer = int(options["dose_tasks"])
    errors = [1 - np.mean(play(world, seed, fewer, WRONG, recall, ALARMS)) for recall in DOSES]
    slope = float(np.polyfit(DOSES, errors, 1)[0]) / -(WRONG * (1 - WRONG))
    majority = [vote(world, seed, count, drafts) for drafts in DRAFTS]
    return [
        {
            "method": method[k],
            "control": control[k],
            "null_method": null[0][k % len(null[0])],
            "null_control": null[1][k % len(null[1])],
            "extra.majority": majority[0][k],
            "extra.three": majority[1][k],
            "extra.slope": slope,
            "extra.error": 1 - method[k],
        }
        for k in range(count)
    ]


def play(world: str, seed: int, count: int, wrong: float, recall: float, alarms: float) -> list[float]:
    """Return whether each of `count` tasks is solved by a script with these chances."""
    with play_mind(Mind(partial(say, wrong, recall, alarms)), world, seed=seed, agent="rci+text") as probe:
        return [float(t.is_success) for t in flatten_scored(probe.play(probe.tasks(count)))]


def vote(world: str, seed: int, count: int, drafts: int) -> list[float]:
    """Return whether what most of so many `drafts` say solves each task; of equal ones the first counts."""
    with play_mind(Mind(partial(say, WRONG, 0.0, 0.0)), world, seed=seed, agent="text") as probe:
        found: list[float] = []
        for k, trajectory in enumerate(flatten_scored(probe.play(probe.tasks(count)))):
            problem = read_problem(str(trajectory.turns[0].observation))
            assert problem is not None, "the world is blocks"
            made = [draft_plan(problem, WRONG, derive_seed(seed, k, part)) for part in range(drafts)]
            found.append(float(is_right(problem, Counter(made).most_common(1)[0][0])))
    return found
