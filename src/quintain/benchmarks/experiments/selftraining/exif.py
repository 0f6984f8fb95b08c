"""EXIF: does what an episode is called in hindsight teach to follow goals, or does playing like it do as well?

One who errs in most turns explores lands of `craft`. Of its failures those that reached something become episodes of
that goal, which end there, and a model that knows nothing imitates them. The number is its success on held-out lands at
goals as they are drawn. The control imitates the same episodes, turn by turn, under one another's goals: the prompts
ask for what others reached. The null world has those alone whose goal is the most frequent one, so that permuting
changes nothing. The entropy of goals stands beside it.
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
from quintain.benchmarks.labs.pupil import Pupil, new_pupil, tasks_from
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.methods.selftraining.exif import skill_of
from quintain.rollout.hindsight import hindsight
from quintain.rollout.views import Looks
from quintain.training.start import build_agent
from quintain.types import Trajectory, as_text, derive_seed


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return success at goals as they are drawn after true and after permuted goals were imitated."""
    world = str(options["world"])
    blank = new_pupil([world], seed=derive_seed("exif", seed) % (1 << 31), model=str(options["model"]))
    agent = build_agent(blank.tokenizer, find(world), temperature=1.0)
    told = explored(blank, world, agent, options, seed)
    labels = Counter(skill_of(t.task) for t in told)
    usual = labels.most_common(1)[0][0]
    shares = [count / labels.total() for count in labels.values()]
    row = {
        **arms(blank, world, agent, told, options, seed),
        "extra.entropy": -sum(p * math.log(p) for p in shares),
        "extra.relabelled": float(len(told)),
    }
    if int(options["block"]) < int(options.get("null_blocks", 2)):
        alike = [t for t in told if skill_of(t.task) == usual]
        row |= {
            f"null_{name}": value for name, value in arms(blank, world, agent, alike, options, seed).items()
        }
    return [row]


def explored(
    blank: Pupil, world: str, agent: Agent, options: Mapping[str, Any], seed: int
) -> list[Trajectory]:
    """Return the failures of one who errs, under what they reached."""
    tasks = tasks_from(world, int(options["episodes"]), first=derive_seed(seed, "tasks") % 1_000_000)
    played = blank.show(world, tasks, noisy(float(options["mistakes"])), seed=seed)
    relabel = hindsight(find(world), agent)
    return [made for t in played if not t.is_success and (made := relabel(t)) is not None]


def arms(
    blank: Pupil,
    world: str,
    agent: Agent,
    told: Sequence[Trajectory],
    options: Mapping[str, Any],
    seed: int,
) -> dict[str, float]:
    """Return the success of who imitated `told`, and of who imitated the same under permuted goals."""
    held_out = tasks_from(world, int(options["held_out"]), split="eval")
    found: dict[str, float] = {}
    others = permuted(world, agent, told, random.Random(seed))
    for name, episodes in (("method", told), ("control", others)):
        pupil = blank.copy()
        pupil.learn(
            example_samples([as_example(t) for t in episodes]),
            updates=int(options["updates"]),
            rate=float(options["rate"]),
            seed=seed,
        )
        found[name] = pupil.success(world, held_out, seed=seed)
    return found


def permuted(
    world: str, agent: Agent, episodes: Sequence[Trajectory], rng: random.Random
) -> list[Trajectory]:
    """Return `episodes` under one another's goals."""
    goals = [skill_of(t.task) for t in episodes]
    others = rng.sample(goals, len(goals))
    return [asked_for(world, agent, t, *of) for t, *of in zip(episodes, goals, others, strict=True)]


def asked_for(world: str, agent: Agent, trajectory: Trajectory, goal: str, other: str) -> Trajectory:
    """Return `trajectory` as if it had been asked for the goal `other`: its first prompt names that one."""
    with closing(equip(agent, find(world)())) as environment:
        start = Looks(has_state_keys=False).start(environment, trajectory.task)
        (view,) = start.views
        text = as_text(view.observation).replace(f"Goal: {goal}.", f"Goal: {other}.", 1)
        prompt = agent.open(start.brief).observe(text, view.legal_actions)
    first = replace(trajectory.turns[0], prompt_ids=prompt.token_ids)
    return replace(trajectory, turns=(first, *trajectory.turns[1:]))
