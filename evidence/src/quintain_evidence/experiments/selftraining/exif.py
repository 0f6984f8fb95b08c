"""EXIF: does what an episode is called in hindsight teach to follow goals, or does playing like it do as well?

In a small `shop` one explores who looks for the kind of thing that is asked for, and then takes what she likes: any
item that is shown, any color, any size. What she bought was wrong for the wish that she was told and right for another,
and no purchase is right for two wishes of different color or size: goals exclude each other. Of her failures those that
bought something become episodes of the wish that it fulfils, and a model that knows nothing imitates them. The number
is its success on held-out shops at wishes as they are drawn. The control imitates the same episodes, turn by turn,
under one another's wishes. In the null world all are told the same wish, so that permuting changes nothing. Where that
is measured, what comes of imitating them under the wishes that they were asked for stands beside it.
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
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.methods.selftraining.exif import skill_of
from quintain.rollout.hindsight import hindsight
from quintain.rollout.views import EnvironmentReader
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Action, Observation, Trajectory, derive_seed
from quintain.warm_start.start import build_agent
from quintain.worlds.shop.game import LETTERS, Shop


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return success at wishes as they are drawn after true and after permuted wishes were imitated."""
    world = str(options["world"])
    blank = new_pupil([world], seed=derive_seed("exif", seed) % (1 << 31), model=str(options["model"]))
    agent = build_agent(blank.tokenizer, find(world), temperature=1.0)
    failed = explored(blank, world, options, seed)
    relabel = hindsight(find(world), agent)
    pairs = [(t, made) for t in failed if (made := relabel(t)) is not None]
    told = [made for _, made in pairs]
    labels = Counter(skill_of(t.task) for t in told)
    shares = [count / labels.total() for count in labels.values()]
    row = {
        **arms(blank, world, agent, told, options, seed),
        "extra.entropy": -sum(p * math.log(p) for p in shares),
        "extra.relabelled": float(len(told)),
    }
    if int(options["block"]) < int(options.get("null_blocks", 2)):
        alike = [asked_for(world, agent, t, told[0].task.data) for t in told]
        row["extra.as_asked"] = taught(blank, world, [t for t, _ in pairs], options, seed)
        row |= {
            f"null_{name}": value for name, value in arms(blank, world, agent, alike, options, seed).items()
        }
    return [row]


def explored(blank: Pupil, world: str, options: Mapping[str, Any], seed: int) -> list[Trajectory]:
    """Return the failures of one who takes what she likes."""
    tasks = tasks_from(world, int(options["episodes"]), first=derive_seed(seed, "tasks") % 1_000_000)
    return [t for t in blank.show(world, tasks, by_taste, seed=seed) if not t.is_success]


def by_taste(environment: Environment, rng: random.Random, _: Sequence[Observation]) -> Action:
    """Look for the kind of thing that is asked for, then take any item that is shown, any color and any size.

    Raises:
        UsageError: it is no shop.
    """
    if not isinstance(environment, Shop):
        raise UsageError(f"one who buys by taste: got {type(environment).__name__}; give a shop")
    stock, visit = environment.snapshot()[:2]
    if visit.page == "home":
        return environment.expert_action()
    if visit.page == "results":
        return Action(text=f"click {rng.choice(LETTERS[: len(visit.results) - visit.offset])}")
    item = stock.items[visit.item]
    wanted = rng.choice(item.colors), rng.choice(item.sizes)
    left = [own for own, chosen in zip(wanted, (visit.color, visit.size), strict=True) if not chosen]
    return Action(text=f"click {left[0] if left else 'buy'}")


def arms(
    blank: Pupil,
    world: str,
    agent: Agent,
    told: Sequence[Trajectory],
    options: Mapping[str, Any],
    seed: int,
) -> dict[str, float]:
    """Return the success of who imitated `told`, and of who imitated the same under permuted wishes."""
    others = permuted(world, agent, told, random.Random(seed))
    return {
        "method": taught(blank, world, told, options, seed),
        "control": taught(blank, world, others, options, seed),
    }


def taught(
    blank: Pupil, world: str, episodes: Sequence[Trajectory], options: Mapping[str, Any], seed: int
) -> float:
    """Return the success on held-out tasks of a copy of `blank` that imitated `episodes`."""
    pupil = blank.copy()
    pupil.learn(
        example_samples([as_example(t) for t in episodes]),
        updates=int(options["updates"]),
        rate=float(options["rate"]),
        seed=seed,
    )
    return pupil.success(world, tasks_from(world, int(options["held_out"]), split="eval"), seed=seed)


def permuted(
    world: str, agent: Agent, episodes: Sequence[Trajectory], rng: random.Random
) -> list[Trajectory]:
    """Return `episodes` under one another's goals."""
    goals = [t.task.data for t in episodes]
    others = rng.sample(goals, len(goals))
    return [asked_for(world, agent, t, goal) for t, goal in zip(episodes, others, strict=True)]


def asked_for(world: str, agent: Agent, trajectory: Trajectory, goal: Mapping[str, Any]) -> Trajectory:
    """Return `trajectory` as if it had been asked for `goal`, data of a task: its first prompt names that one."""
    with closing(equip(agent, find(world)())) as environment:
        task = replace(trajectory.task, data={**trajectory.task.data, **goal})
        start = EnvironmentReader(has_state_keys=False).start(environment, task)
        (view,) = start.views
        prompt = agent.open(start.brief).observe(view.observation, view.legal_actions)
    first = replace(trajectory.turns[0], prompt_ids=prompt.token_ids)
    return replace(trajectory, task=task, turns=(first, *trajectory.turns[1:]))
