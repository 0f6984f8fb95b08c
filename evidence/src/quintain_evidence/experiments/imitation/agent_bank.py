"""AgentBank: do forced actions for failed tasks teach what is hard, or does more of what was solved do as well?

Users of `collab` tell some details at once; what they do not tell makes a task hard. A teacher that errs tries every
task; what it solved is mostly easy. The method adds the expert's episodes for the tasks that it never solved. The
control draws from what the teacher solved until its difficulties are those of the method's set: its few hard successes
again and again. Mistaken turns count in neither, and both learn from as many tokens. The number is success on the
hardest third of held-out tasks. In the null world the teacher never errs, and there is nothing to force.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from quintain.data.pipeline import as_example, example_samples, num_trained
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import begin
from quintain.methods.imitation import agent_bank
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Example, Task, derive_seed, flatten_scored
from quintain.worlds.collab.game import Collab


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return success on the hardest third after both choices of data."""
    world = str(options["world"])
    model = str(options.get("model", "mini?tokens=words"))
    blank = new_pupil([world], seed=derive_seed("bank", seed) % (1 << 31), model=model)
    row = arms(blank, world, options, seed, float(options.get("mistakes", 0.25)))
    found = {
        "method": row["forced"],
        "control": row["resampled"],
        **{f"extra.{name}": value for name, value in row.items() if name not in ("forced", "resampled")},
    }
    if int(options["block"]) < int(options.get("null_blocks", 2)):
        null = arms(blank, world, options, seed, 0.0)
        found |= {"null_method": null["forced"], "null_control": null["resampled"]}
    return [found]


def arms(
    blank: Pupil, world: str, options: Mapping[str, Any], seed: int, mistakes: float
) -> dict[str, float]:
    """Return the success of both arms, and what the gates ask for, with a teacher that errs in `mistakes` turns."""
    tasks = tasks_from(world, int(options.get("tasks", 200)), first=derive_seed(seed, "tasks") % 1_000_000)
    level = {task.id: untold(world, task) for task in tasks}
    tried = [
        t
        for number in range(int(options.get("tries", 4)))
        for t in blank.show(world, tasks, noisy(mistakes), seed=derive_seed(seed, number))
    ]
    forced = agent_bank.find_needed(tried, blank.show(world, tasks, noisy(0.0), seed=seed))
    made = agent_bank.pipeline(agent_bank.sound_in(world), lambda _: False)
    solved = list(made.run([as_example(t) for t in tried]).examples)
    added = list(made.run([as_example(t) for t in forced]).examples)
    method = [*solved, *added]
    control = resampled(solved, method, level, seed) if added else method
    held_out = tasks_from(world, int(options.get("held_out", 384)), split="eval")
    hard = hardest(world, held_out)
    found = {
        "gap": agent_bank.difficulty_gap([level[e.trajectory.task.id] for e in solved], list(level.values())),
        "added": float(len(added)),
    }
    for name, examples in (("forced", method), ("resampled", control)):
        pupil = taught(blank, examples, options, seed)
        played = flatten_scored(pupil.play(world, held_out, seed=seed))
        found[name] = fmean(float(t.is_success) for t in played if t.task.id in hard)
        found[f"{name}_easy"] = fmean(float(t.is_success) for t in played if t.task.id not in hard)
    return found


def taught(blank: Pupil, examples: Sequence[Example], options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a pupil that imitated `examples` until it was trained on as many tokens as are asked for."""
    tokens = fmean(num_trained(example) for example in examples)
    size = int(options.get("size", 16))
    pupil = blank.copy()
    pupil.learn(
        example_samples(examples),
        updates=max(1, round(float(options.get("tokens", 16_000)) / (size * tokens))),
        rate=float(options.get("rate", 2e-3)),
        size=size,
        seed=seed,
    )
    return pupil


def resampled(
    solved: Sequence[Example], like: Sequence[Example], level: Mapping[str, int], seed: int
) -> list[Example]:
    """Return as many examples of `solved`, some of them again, with the difficulties of `like`.

    Where nothing of a difficulty was solved, the next easier one stands in.
    """
    rng = random.Random(seed)
    by_level: dict[int, list[Example]] = {}
    for example in solved:
        by_level.setdefault(level[example.trajectory.task.id], []).append(example)
    found: list[Example] = []
    taken: dict[int, int] = {}
    for example in like:
        own = level[example.trajectory.task.id]
        known = max((k for k in by_level if k <= own), default=min(by_level))
        place = taken.get(known, 0)
        if place % len(by_level[known]) == 0:
            rng.shuffle(by_level[known])
        found.append(by_level[known][place % len(by_level[known])])
        taken[known] = place + 1
    return found


def hardest(world: str, tasks: Sequence[Task]) -> set[str]:
    """Return the names of the third of `tasks` with the most details untold."""
    ranked = sorted(tasks, key=lambda task: -untold(world, task))
    return {task.id for task in ranked[: len(ranked) // 3]}


def untold(world: str, task: Task) -> int:
    """Return how many details the user of `task` does not tell at once."""
    environment = find(world)()
    assert isinstance(environment, Collab), "the world is a user"
    begin(environment, task)
    wish = environment.snapshot().wish
    return len(wish.values) - len(wish.told)
