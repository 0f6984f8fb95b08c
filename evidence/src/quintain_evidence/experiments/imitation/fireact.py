"""FireAct: does keeping what came out right, of teachers who each act in one way, teach when to use which way?

Books of `stream`, half of whose questions tell their answer. One teacher answers every question at once, one always
reads first; both act on all tasks. The number is how much likelier the pupil is to read first where the answer is not
told, by the probability of its first action on held-out prompts. The control keeps as many episodes of each teacher,
drawn at random. In the null world the hasty teacher is told the answer, so that both are always right and the filter
keeps all: bit by bit the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quintain.data.pipeline import as_example, example_samples
from quintain.environments.noisy import single_method
from quintain.environments.protocol import Environment
from quintain.methods.imitation import fireact
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Action, Observation, Trajectory, derive_seed
from quintain.worlds.stream.game import Stream

WAYS = ("direct", "reading")


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the preference for reading of a pupil of each choice of episodes."""
    world, count = str(options["world"]), int(options.get("tasks", 300))
    blank = new_pupil([world], seed=derive_seed("fireact", seed) % (1 << 31))
    tasks = tasks_from(world, count, first=derive_seed(seed, "tasks") % 1_000_000)
    by_way = [blank.show(world, tasks, single_method(way), seed=derive_seed(seed, way)) for way in WAYS]
    method, kept, share = arms(blank, world, by_way, options, seed)
    row = {
        "method": method[0],
        "control": method[1],
        "extra.open": kept[0],
        "extra.closed": kept[1],
        "extra.kept": share,
    }
    if int(options["block"]) < int(options.get("null_blocks", 2)):
        told = [blank.show(world, tasks, told_answer, seed=derive_seed(seed, "told")), by_way[1]]
        null, _, _ = arms(blank, world, told, options, seed)
        row |= {"null_method": null[0], "null_control": null[1]}
    return [row]


def arms(
    blank: Pupil, world: str, by_way: Sequence[Sequence[Trajectory]], options: Mapping[str, Any], seed: int
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return the preference of the method and of the control, the method's two probabilities, and the share kept."""
    pipeline, rng = fireact.pipeline(fireact.Config().longest), random.Random(seed)
    right = [list(pipeline.run([as_example(t) for t in own]).examples) for own in by_way]
    drawn = [
        [as_example(own[k]) for k in sorted(rng.sample(range(len(own)), len(kept)))]
        for own, kept in zip(by_way, right, strict=True)
    ]
    found: list[tuple[float, float]] = []
    for choice in (right, drawn):
        pupil = blank.copy()
        pupil.learn(
            example_samples([example for own in choice for example in own]),
            updates=int(options.get("updates", 150)),
            rate=float(options.get("rate", 2e-3)),
            size=int(options.get("size", 32)),
            seed=seed,
        )
        found.append(reads_first(pupil, world, int(options.get("held_out", 512))))
    (first, second) = found
    share = sum(map(len, right)) / sum(map(len, by_way))
    return (first[0] - first[1], second[0] - second[1]), first, share


def reads_first(pupil: Pupil, world: str, count: int) -> tuple[float, float]:
    """Return the probability that `pupil` reads first where the answer is not told, and where it is."""
    tasks = tasks_from(world, count, split="eval")
    is_open: dict[str, bool] = {}

    def read(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        return Action(text="read")

    def look(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        assert isinstance(environment, Stream), "the world is a book"
        return Action(text="read" if environment.needs_reading() else "answer 0")

    for t in pupil.show(world, tasks, look, seed=0, turns=1):
        is_open[t.task.id] = t.turns[0].action.text == "read"
    asked = pupil.show(world, tasks, read, seed=0, turns=1)
    chances = np.exp([own[0] for own in pupil.chances(asked)])
    opened = np.array([is_open[t.task.id] for t in asked])
    return float(chances[opened].mean()), float(chances[~opened].mean())


def told_answer(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
    """Answer at once what only one who has read can know."""
    assert isinstance(environment, Stream), "the world is a book"
    return Action(text=f"answer {environment.snapshot().book.questions[0].answer}")
