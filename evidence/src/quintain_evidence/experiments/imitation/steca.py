"""STeCa: are deviations found by what they cost the places from which a way out must be shown?

In `web` only a dead end needs ``back``, which the expert never shows. A start that imitates the expert, and one who
clicks into dead ends and stops there, explores the expert's episodes in free text. The method adds what it finds to
them: deviations, with the expert's way out of them. The control has as many calibrated examples with as many tokens of
the same failed episodes, cut behind a turn of them that did no harm. The number is success after one forced click into
the dead end. In the null world the expert explores its own episodes: nothing deviates, and both arms imitate the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, cast

import numpy as np

from quintain.data.pipeline import as_example, example_samples, num_trained, weigh_turns
from quintain.environments.catalog import find
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import Environment, Expert
from quintain.methods.imitation import steca
from quintain.methods.method import Collector
from quintain.rollout.samplers import Demonstrator
from quintain.testing.pupil import Pupil, RolloutCollector, new_pupil, tasks_from
from quintain.types import Action, Example, Observation, Trajectory, derive_seed, flatten_scored
from quintain.warm_start.start import expert_action

FORCED = 1
"""Turn in which the mistake is forced: on the page that lists things."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return recovery after both choices of data, and what the gates ask for."""
    world, count = str(options["world"]), int(options.get("episodes", 200))
    model = str(options.get("model", "mini?tokens=runs"))
    blank = new_pupil([world], seed=derive_seed("steca", seed) % (1 << 31), model=model, agent="text")
    tasks = tasks_from(world, count, first=derive_seed(seed, "tasks") % 1_000_000)
    shown = blank.show(world, tasks, expert_action, seed=seed)
    others = tasks_from(world, count, first=derive_seed(seed, "others") % 1_000_000)
    erring = blank.show(world, others, err_once, seed=seed, turns=FORCED + 1)
    start = blank.copy()
    success = start.learn_until(
        example_samples([as_example(t) for t in (*shown, *erring)]),
        world,
        low=float(options.get("low", 0.3)),
        high=float(options.get("high", 0.9)),
        first=int(options.get("first", 250)),
        rate=float(options.get("rate", 2e-3)),
    )
    explored = shown[: int(options.get("explored", 60))]
    made, control, num = choices(start, world, explored, options, seed)
    forced = mistaken(blank, world, int(options.get("held_out", 512)))
    base = list(map(as_example, shown))
    row = {"extra.start": success, "extra.found": float(num), "extra.other": float(len(made) - num)}
    traps: list[float] = []
    for name, examples in (("method", made), ("control", control), ("extra.sft", [])):
        pupil = taught(start, [*base, *examples], options, seed)
        row[name] = recovery(pupil, world, forced, seed)
        traps.append(fmean(float(np.exp(own[FORCED])) for own in pupil.chances(forced)))
        if name == "method":
            plain = tasks_from(world, int(options.get("tried", 64)), split="eval")
            row["extra.success"] = pupil.success(world, plain, seed=seed)
    row["extra.trap"] = traps[0] - traps[1]
    if int(options["block"]) < int(options.get("null_blocks", 2)):
        none, same, _ = choices(start, world, explored, options, seed, player=expert_action)
        for name, examples in (("null_method", none), ("null_control", same)):
            row[name] = recovery(taught(start, [*base, *examples], options, seed), world, forced, seed)
    return [row]


def choices(
    start: Pupil,
    world: str,
    shown: Sequence[Trajectory],
    options: Mapping[str, Any],
    seed: int,
    player: Demonstrator | None = None,
) -> tuple[list[Example], list[Example], int]:
    """Return what the method finds when `start`, or `player`, explores `shown`; the control's; and the ways out."""
    found, config = steca.Found(), steca.Config()
    with start.acting(world) as rollout:
        collector = RolloutCollector(rollout=rollout, seed_of_run=seed, player=player)
        samples = int(options.get("samples", 2))
        groups = found.explore(cast(Collector, collector), 1, shown, samples)
    made = list(steca.pipeline(found, find(world), config.alike)(groups).examples)
    rng = random.Random(seed)
    steps = {id(step.way_out): step for step in found.steps.values() if step.way_out is not None}
    by_example = [(example, steps.get(id(example.trajectory))) for example in made]
    control = [harmless(e, step, rng) if step is not None else e for e, step in by_example]
    return made, control, sum(step is not None for _, step in by_example)


def harmless(example: Example, step: steca.Step, rng: random.Random) -> Example:
    """Return the expert's way on from behind a turn before the mistake, which is as much trained in all."""
    first = rng.randrange(step.number) + 1
    num = len(step.shown.turns)
    plain = weigh_turns(as_example(step.shown), [0.0] * first + [1.0] * (num - first))
    assert example.weights is not None, "a calibrated example has weights"
    whole = float(sum(own.sum() for own in example.weights))
    return weigh_turns(plain, [whole / num_trained(plain)] * num)


def taught(start: Pupil, examples: Sequence[Example], options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a copy of `start` that imitated `examples`."""
    pupil = start.copy()
    pupil.learn(
        example_samples(examples),
        updates=int(options.get("updates", 80)),
        rate=float(options.get("rate", 2e-3)),
        size=int(options.get("size", 16)),
        seed=seed,
    )
    return pupil


def mistaken(pupil: Pupil, world: str, count: int) -> list[Trajectory]:
    """Return the beginnings of held-out episodes: the expert's way to the list, a mistake there, and one turn more."""
    return pupil.show(world, tasks_from(world, count, split="eval"), err_once, seed=0, turns=FORCED + 2)


def err_once(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
    """Do as the expert, but for a mistake on the page that lists things."""
    assert isinstance(environment, Expert) and isinstance(environment, Fallible), "the world is a site"
    return environment.mistaken_action(rng) if len(seen) == FORCED + 1 else environment.expert_action()


def recovery(pupil: Pupil, world: str, forced: Sequence[Trajectory], seed: int) -> float:
    """Return the share of tasks that `pupil` solves behind the mistake."""
    with pupil.acting(world) as rollout:
        ahead = [walk.prefix(FORCED + 1) for walk in rollout.replay_episodes(forced)]
        played = rollout.continuations(ahead, size=1, seed=derive_seed("recovery", seed))
    return fmean(float(t.is_success) for t in flatten_scored(played))
