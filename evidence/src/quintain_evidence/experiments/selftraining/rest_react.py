"""ReST meets ReAct: does ranking samples of a step without labels point to success, or only choosing one of them?

A start that answers books of `stream` half-way rests. Every step of its own episodes is sampled four times; a check of
grounding, which reads text alone, ranks them. The number compares the gradients of imitating the first-ranked samples
and random ones of the same four with the gradient of success of other episodes. In the null world, sums, no text
supports an answer: all four tie, and the first of them is as good as any. How often the ranker agrees with the truth
stands beside it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from quintain.credit_lab.gradient import compare_choices, leave_out, success_credit
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.noisy import noisy
from quintain.methods.selftraining import rest_react
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Group, Trajectory, derive_seed, flatten_scored

FAR = 100_000
"""Number of the first task that steps are sampled in; starts learn from the tasks before."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one start: cosines of first-ranked and of random samples with success."""
    world, num = str(options["world"]), int(options["seeds"])
    start, success = taught(world, options, seed)
    own = cosines(start, world, options, seed)
    null_world = str(options.get("null_world", "sums?digits=1&slips=0&revisions=0"))
    other, _ = taught(null_world, options, seed)
    nulls = averaged(other, null_world, options, seed)
    return [
        {
            "method": own["method"][k],
            "control": own["control"][k],
            "null_method": nulls["method"][k],
            "null_control": nulls["control"][k],
            "extra.start": success,
            "extra.agreement": own["agreement"][k],
        }
        for k in range(num)
    ]


def averaged(other: Pupil, world: str, options: Mapping[str, Any], seed: int) -> dict[str, list[float]]:
    """Return the cosines of both arms in the null world, each the mean of `null_repeats` batches.

    The cosine of a direction that is noise alone does not get smaller with the batch, so many small ones are taken.
    """
    repeats, size = int(options.get("null_repeats", 1)), int(options.get("null_episodes", 32))
    found = cosines(
        other,
        world,
        {**options, "seeds": int(options["seeds"]) * repeats, "episodes": size, "reference": size},
        seed,
    )
    return {
        name: np.array(found[name], np.float64).reshape(-1, repeats).mean(axis=1).tolist()
        for name in ("method", "control")
    }


def taught(world: str, options: Mapping[str, Any], seed: int) -> tuple[Pupil, float]:
    """Return a pupil of an expert that errs, taught until its success is as asked, and its success."""
    model = str(options.get("model", "mini?tokens=words"))
    pupil = new_pupil([world], seed=derive_seed("rest", seed) % (1 << 31), model=model)
    tasks = tasks_from(world, int(options.get("demonstrations", 256)))
    shown = pupil.show(world, tasks, noisy(float(options.get("mistakes", 0.3))), seed=seed)
    samples = example_samples([as_example(t) for t in shown])
    low, high = float(options.get("low", 0.3)), float(options.get("high", 0.6))
    return pupil, pupil.learn_until(samples, world, low=low, high=high, first=int(options.get("first", 16)))


def cosines(start: Pupil, world: str, options: Mapping[str, Any], seed: int) -> dict[str, list[float]]:
    """Return cosines of both arms, and the share of steps in which the ranker agrees with what is right."""
    num, size = int(options["seeds"]), int(options.get("episodes", 32))
    targets = success_gradients(start, world, num, int(options.get("reference", 64)), seed)
    played = flatten_scored(
        start.play(world, tasks_from(world, num * size, first=FAR), seed=derive_seed(seed, "grow"))
    )
    best: list[list[Trajectory]] = []
    drawn: list[list[Trajectory]] = []
    agreement: list[float] = []
    rng = random.Random(seed)

    def rank(t: Trajectory) -> float:
        return rest_react.grounding(start.decode(t.turns[0].prompt_ids), t.turns[0].action.text)

    stage = rest_react.keep_first_ranked(rank)
    for k in range(num):
        steps = start.alternatives(
            world, played[k * size : (k + 1) * size], size=4, seed=derive_seed(seed, "steps", k)
        )
        best.append([e.trajectory for e in stage.apply([as_example(t) for t in flatten_scored(steps)])])
        drawn.append([rng.choice(group.scored) for group in steps])
        agreement.append(agrees(steps, rank))
    sets = {
        name: [example_samples([as_example(t) for t in own]) for own in choice]
        for name, choice in (("method", best), ("control", drawn))
    }
    return {**compare_choices(start.lab, sets, targets), "agreement": agreement}


def agrees(steps: Sequence[Group], rank: rest_react.Ranker) -> float:
    """Return the share of answers whose rank says what is true of them; reading has no truth."""
    found = [
        (rank(t) > 0) == t.is_success
        for group in steps
        for t in group.scored
        if t.turns[0].action.text.startswith("answer")
    ]
    return float(np.mean(found)) if found else 0.0


def success_gradients(start: Pupil, world: str, num: int, size: int, seed: int) -> list[Tensor]:
    """Return `num` gradients of success in held-out tasks, each of all batches of `size` episodes but one."""
    group = 4
    each = max(1, size // group)
    groups = start.play(world, tasks_from(world, num * each, split="eval"), size=group, seed=seed)
    return leave_out(
        [start.lab.gradient(success_credit(groups[k * each : (k + 1) * each])) for k in range(num)]
    )
