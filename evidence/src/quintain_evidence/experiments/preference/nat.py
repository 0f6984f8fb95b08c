"""NAT: do failures help under their label, and does the label tell them from what to do?

A user's wish is found out by asking, and an expert who errs hands in too soon now and then. Few of its successes and
many of its failures are imitated by a tiny model, each under the label of how it turned out. The number is the success
on held-out tasks under the label `right`. The control has the same labels, permuted over the same episodes. In the null
world failures are luck: the expert never errs, and which of its episodes count as failures is drawn.

Beside it: success under the label `wrong`, and that of the successes alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from quintain.agents.labelled import SENTENCES, Label, Labelled
from quintain.data.samples import imitation_samples
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.errors import DataError
from quintain.methods.preference.nat import label_of
from quintain.rollout.collect import Rollout
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Trajectory, derive_seed, flatten_scored
from quintain.warm_start.start import build_agent

CHUNK, MOST = 200, 2000
"""Tasks that are shown at once, and the most."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the success of a pupil of each way of labelling."""
    found = arms(str(options["spec"]), float(options.get("mistakes", 0.3)), options, seed)
    row = {
        "method": found["labelled"],
        "control": found["permuted"],
        "extra.wrong": found["labelled"] - found["under wrong"],
        "extra.used": found["labelled"] - found["successes"],
        "extra.successes": found["successes"],
    }
    if int(options["block"]) < int(options.get("null_blocks", 6)):
        null = arms(str(options["spec"]), 0.0, options, seed + 1)
        row |= {"null_method": null["labelled"], "null_control": null["permuted"]}
    return [row]


def arms(world: str, mistakes: float, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return the success on held-out tasks under `right`, and of the method under `wrong`, by arm.

    Without `mistakes` all is right, and as many episodes as there would be failures are drawn to be called so.
    """
    blank = new_pupil(
        [world],
        seed=derive_seed("nat", seed) % (1 << 31),
        model=str(options.get("model", "micro?tokens=words")),
        texts=SENTENCES.values(),
    )
    shown = gathered(blank, world, mistakes, options, seed)
    labels: list[Label] = ["right" if each["right"].is_success else "wrong" for each in shown]
    rng = random.Random(seed)
    if not mistakes:
        few = set(rng.sample(range(len(shown)), int(options.get("successes", 30))))
        labels = ["right" if place in few else "wrong" for place in range(len(shown))]
    mixed = rng.sample(labels, len(labels))
    chosen: dict[str, list[Trajectory]] = {
        "labelled": [each[label] for each, label in zip(shown, labels, strict=True)],
        "permuted": [each[label] for each, label in zip(shown, mixed, strict=True)],
    }
    if mistakes:
        chosen["successes"] = [each["right"] for each in shown if each["right"].is_success]
    found: dict[str, float] = {}
    for name, episodes in chosen.items():
        pupil = blank.copy()
        pupil.learn(
            imitation_samples(episodes),
            updates=int(options.get("updates", 150)),
            rate=float(options.get("rate", 4e-3)),
            seed=seed,
        )
        found[name] = success(pupil, world, "right", options, seed)
        if name == "labelled" and mistakes:
            found["under wrong"] = success(pupil, world, "wrong", options, seed)
    return found


def gathered(
    pupil: Pupil, world: str, mistakes: float, options: Mapping[str, Any], seed: int
) -> list[dict[Label, Trajectory]]:
    """Return so many successes and failures of an expert who errs, each as it is shown under both labels.

    Raises:
        DataError: there are too few of one kind.
    """
    successes, failures = int(options.get("successes", 30)), int(options.get("failures", 150))
    room = (
        {"right": successes, "wrong": failures} if mistakes else {"right": successes + failures, "wrong": 0}
    )
    found: list[dict[Label, Trajectory]] = []
    for first in range(0, MOST, CHUNK):
        tasks = tasks_from(world, CHUNK, first=derive_seed(seed, "shown") % 1_000_000 + first)
        both: dict[Label, dict[str, Trajectory]] = {}
        labels: tuple[Label, ...] = ("right", "wrong")
        for label in labels:
            rollout = Rollout(harness(pupil, world, label), find(world), None)
            try:
                groups = rollout.demonstrations(tasks, noisy(mistakes), seed=derive_seed(seed, "shown"))
            finally:
                rollout.close()
            both[label] = {each.task.id: each for each in flatten_scored(groups)}
        for name, each in both["right"].items():
            own = label_of(each.is_success, 0.0)
            if room[own] and name in both["wrong"]:
                room[own] -= 1
                found.append({"right": each, "wrong": both["wrong"][name]})
        if not any(room.values()):
            return found
    raise DataError(f"demonstrations of {world}: got too few, {room} are missing; change mistakes")


def harness(pupil: Pupil, world: str, label: Label) -> Labelled:
    """Return the harness of `world` under `label`."""
    return Labelled(build_agent(pupil.tokenizer, find(world), temperature=1.0), label)


def success(pupil: Pupil, world: str, label: Label, options: Mapping[str, Any], seed: int) -> float:
    """Return the share of held-out tasks that `pupil` solves under `label`."""
    engine = build_engine(EngineSettings(), pupil.model, pupil.tokenizer)
    rollout = Rollout(harness(pupil, world, label), find(world), engine)
    try:
        tasks = tasks_from(world, int(options.get("held_out", 256)), split="eval")
        played = flatten_scored(rollout.groups(tasks, size=1, seed=derive_seed(seed, "held out")))
    finally:
        rollout.close()
        engine.close()
    return sum(each.is_success for each in played) / max(1, len(played))
