"""Agent-FLAN: do negatives teach to look whether there is a tool, or only to refuse?

Arithmetic with one operation; a first line lists the tools, or words that are none. Negatives are told for two of the
three operations. The number is how much likelier a refusal is where the *third* operation's tool is withheld than where
it is listed, by the probability of the whole reply. The control has as many refusals, on prompts drawn without regard
to the list. In the null world the list is not shown.

The rival imitates the same calls for as many updates, and no negatives.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quintain.data.pipeline import as_example, example_samples
from quintain.environments.protocol import Environment, begin
from quintain.methods.imitation import agent_flan
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Action, Observation, Trajectory, derive_seed
from quintain.warm_start.start import expert_action
from quintain.worlds.calc.game import REFUSAL, Calc

UNSEEN = "multiply"
"""The operation that is never refused in training."""


def refuse(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
    """Say that there is no tool, whether there is one or not."""
    return Action(text=REFUSAL)


def call(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
    """Make the call that would solve the task, whether its tool is there or not."""
    assert isinstance(environment, Calc), "the world is arithmetic"
    return Action(tool_calls=(environment.solution()[0],))


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return how much likelier refusals are where they are right, for the method and the control."""
    world = str(options["world"])
    row = arms(world, options, seed)
    if int(options["block"]) < int(options.get("null_blocks", 3)):
        # Without the list a task looks the same whether its tools are there or not.
        null = arms(f"{world}&listed=false", options, seed)
        row |= {"null_method": null["method"], "null_control": null["control"]}
    return [row]


def arms(world: str, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return the number of both arms in `world`, and what the gate asks for."""
    count = int(options.get("episodes", 240))
    model = str(options.get("model", "mini?tokens=words"))
    blank = new_pupil([world], seed=derive_seed("flan", seed) % (1 << 31), model=model, texts=[REFUSAL] * 50)
    tasks = tasks_from(world, 2 * count, first=derive_seed(seed, "tasks") % 1_000_000)
    shown = blank.show(world, tasks, expert_action, seed=seed)
    # Few of the third operation, lest its name alone say that there is a tool.
    few = round(count * float(options.get("unseen", 0.1)))
    known = [t for t in shown if not agent_flan.is_negative(t)]
    acting = [t for t in known if operation(t) != UNSEEN][: count - few]
    acting += [t for t in known if operation(t) == UNSEEN][:few]
    negatives = [t for t in shown if agent_flan.is_negative(t) and operation(t) != UNSEEN][: count // 2]
    # The same prompts, as many refusals of the same operations, whatever was listed; all others are called.
    prompts = [*acting, *negatives]
    places = [k for k, t in enumerate(prompts) if operation(t) != UNSEEN]
    chosen = set(random.Random(seed).sample(places, len(negatives)))
    refused = blank.show(world, [prompts[k].task for k in sorted(chosen)], refuse, seed=seed, turns=1)
    called = blank.show(
        world, [t.task for k, t in enumerate(prompts) if k not in chosen and agent_flan.is_negative(t)], call,
        seed=seed, turns=1,
    )  # fmt: skip
    kept = [t for k, t in enumerate(prompts) if k not in chosen and not agent_flan.is_negative(t)]
    own = taught(blank, prompts, options, seed)
    control = taught(blank, [*kept, *called, *refused], options, seed)
    without = taught(blank, acting, options, seed)
    held_out = tasks_from(world, int(options.get("held_out", 256)), split="eval")
    known = calls(own, world, held_out)
    first, second, third = (told_apart(pupil, world, held_out) for pupil in (own, control, without))
    return {
        "method": first[0] - first[1],
        "control": second[0] - second[1],
        "extra.without": third[0] - third[1],
        "extra.withheld": first[0],
        "extra.listed": first[1],
        "extra.calls": known,
        "extra.calls_lost": calls(without, world, held_out) - known,
        "extra.negatives": float(len(negatives)),
    }


def taught(blank: Pupil, episodes: Sequence[Trajectory], options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a pupil that imitated `episodes`, refusals in the share that there are."""
    pupil = blank.copy()
    pupil.learn(
        example_samples([as_example(t) for t in episodes]),
        updates=int(options.get("updates", 120)),
        rate=float(options.get("rate", 2e-3)),
        size=int(options.get("size", 16)),
        seed=seed,
    )
    return pupil


def told_apart(pupil: Pupil, world: str, tasks: Sequence[Any]) -> tuple[float, float]:
    """Return the probability of refusing the unseen operation, where its tool is withheld and where it is listed."""
    asked = [t for t in pupil.show(world, tasks, refuse, seed=0, turns=1) if operation(t) == UNSEEN]
    right = np.array([t.is_success for t in asked])
    chances = np.exp([own[0] for own in pupil.chances(asked)])
    return float(chances[right].mean()), float(chances[~right].mean())


def calls(pupil: Pupil, world: str, tasks: Sequence[Any]) -> float:
    """Return the probability of the expert's first call where tools are listed."""
    asked = [
        t for t in pupil.show(world, tasks, expert_action, seed=0, turns=1) if t.turns[0].action.tool_calls
    ]
    return float(np.exp([own[0] for own in pupil.chances(asked)]).mean())


def operation(trajectory: Trajectory) -> str:
    """Return the operation that the task of `trajectory` asks for."""
    environment = Calc(steps=1, names=0, checks=0, withheld=0.5)
    begin(environment, trajectory.task)
    return environment.snapshot()[0].steps[0][0]
