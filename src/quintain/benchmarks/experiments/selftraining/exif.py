"""EXIF: does it point to success what an episode is called in hindsight, or only to do what was done?

A start plays in lands of `craft`. Of its failures those that reached something become episodes of that goal, which
end there. The number compares the gradient of imitating them with that of success at goals as they are drawn, of other
episodes. The control are the same episodes, turn by turn, under one another's goals: the prompts ask for what others
reached. The null world has those alone whose goal is the most frequent one, so that permuting changes nothing. The
entropy of goals stands beside it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from quintain.agents.protocol import Agent, equip
from quintain.benchmarks.labs.gradient import compare_choices, leave_out, success_credit
from quintain.benchmarks.labs.pupil import Pupil, new_pupil, tasks_from
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.methods.selftraining.exif import skill_of
from quintain.rollout.hindsight import hindsight
from quintain.rollout.views import Looks
from quintain.training.start import build_agent
from quintain.types import Sample, Trajectory, as_text, derive_seed, scored

TASKS = 32
"""Held-out tasks of a batch, four episodes each, whose gradient of success is compared with."""
FAR = 100_000
"""Number of the first task that is explored; starts learn from the tasks before."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one start: cosines of true and of permuted goals with success."""
    world, num, size = str(options["world"]), int(options["seeds"]), int(options["episodes"])
    pupil = taught(world, options, seed)
    groups = pupil.play(world, tasks_from(world, num * TASKS, split="eval"), size=4, seed=seed)
    success = sum(t.is_success for t in scored(groups)) / len(scored(groups))
    parts = [groups[k * TASKS : (k + 1) * TASKS] for k in range(num)]
    targets = leave_out([pupil.lab.gradient(success_credit(part)) for part in parts])
    agent = build_agent(pupil.tokenizer, find(world), temperature=1.0)
    played = pupil.play(world, tasks_from(world, num * size, first=FAR), seed=derive_seed(seed, "explored"))
    relabel, rng = hindsight(find(world), agent), random.Random(seed)
    told = [[made for t in g.scored if not t.is_success and (made := relabel(t)) is not None] for g in played]
    batches = [[t for own in told[k * size : (k + 1) * size] for t in own] for k in range(num)]
    labels = Counter(skill_of(t.task) for batch in batches for t in batch)
    usual = labels.most_common(1)[0][0]
    sets: dict[str, list[list[Sample]]] = {
        name: [] for name in ("method", "control", "null_method", "null_control")
    }
    for batch in batches:
        alike = [t for t in batch if skill_of(t.task) == usual]
        for prefix, part in (("", batch), ("null_", alike)):
            sets[f"{prefix}method"].append(samples_of(part))
            sets[f"{prefix}control"].append(samples_of(permuted(world, agent, part, rng)))
    found = compare_choices(pupil.lab, sets, targets)
    shares = [count / labels.total() for count in labels.values()]
    entropy = -sum(p * math.log(p) for p in shares)
    return [
        {
            **{name: cosines[k] for name, cosines in found.items()},
            "extra.start": success,
            "extra.entropy": entropy,
            "extra.relabelled": float(len(batches[k])),
        }
        for k in range(num)
    ]


def taught(world: str, options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a pupil that solves some tasks and not all."""
    pupil = new_pupil([world], seed=derive_seed("exif", seed) % (1 << 31), model=str(options["model"]))
    tasks = tasks_from(world, int(options["demonstrations"]))
    shown = pupil.show(world, tasks, noisy(float(options["mistakes"])), seed=seed)
    pupil.learn(samples_of(shown), updates=int(options["updates"]), rate=float(options["rate"]))
    return pupil


def permuted(
    world: str, agent: Agent, episodes: Sequence[Trajectory], rng: random.Random
) -> list[Trajectory]:
    """Return `episodes` under one another's goals."""
    goals = [skill_of(t.task) for t in episodes]
    others = rng.sample(goals, len(goals))
    return [asked_for(world, agent, t, *of) for t, *of in zip(episodes, goals, others, strict=True)]


def samples_of(trajectories: Sequence[Trajectory]) -> list[Sample]:
    """Return the token streams of whole episodes."""
    return example_samples([as_example(t) for t in trajectories])


def asked_for(world: str, agent: Agent, trajectory: Trajectory, goal: str, other: str) -> Trajectory:
    """Return `trajectory` as if it had been asked for the goal `other`: its first prompt names that one."""
    with closing(equip(agent, find(world)())) as environment:
        start = Looks(has_state_keys=False).start(environment, trajectory.task)
        (view,) = start.views
        text = as_text(view.observation).replace(f"Goal: {goal}.", f"Goal: {other}.", 1)
        prompt = agent.open(start.brief).observe(text, view.legal_actions)
    first = replace(trajectory.turns[0], prompt_ids=prompt.token_ids)
    return replace(trajectory, turns=(first, *trajectory.turns[1:]))
