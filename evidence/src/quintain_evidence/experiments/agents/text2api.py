"""text2api and Reflexion: is a wrong call made again where the next attempt is told of it, and is it ever carried out?

Sums with tools. A mind that knows how to solve them makes up an argument in half of the tasks: one name for one tool,
fixed by the task's words, and it heeds no error that a tool returns, as weak models do: such an attempt ends for
repeating itself. It leaves the argument out where the instructions name it. The number is the share of these tasks in
whose second attempt the same wrong call is made again, told of the own wrong call; the control is told that of another
task, with another made-up name. The rival is a plain retry. In the null world what is made up is drawn anew at every
call, so that no lesson is about it. All arms draw alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from random import Random
from typing import Any

from quintain.agents.reflexion import FAILED, Lessons, Reflexion, find_failed_calls
from quintain.environments.protocol import Environment, advance
from quintain.environments.wrapped import Wrapped
from quintain.rollout.request import Limits, Options
from quintain.types import Action, StepResult, ToolCall, Trajectory, derive_seed, flatten_scored
from quintain.worlds.calc.game import Calc
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold

INVENTS = 0.5
MADE_UP = ("unit", "note", "precision", "currency", "mode", "source", "rounding", "locale", "format", "style")
PROBLEM = re.compile(r"Compute: ([^.]*)\.")
RESULT = re.compile(r"(?<=<\|tool\|>)= (-?\d+)")
TOOLS = ("add", "subtract", "multiply", "lookup", "answer")
Invention = tuple[str, str] | None
"""(tool, argument that it does not have)"""


def solve(prompt: str) -> tuple[str, Mapping[str, Any]]:
    """Return the next call of one who computes from left to right, by the problem and the results in `prompt`."""
    found = PROBLEM.findall(prompt)
    results = [int(number) for number in RESULT.findall(prompt)]
    if not found:
        return "answer", {"number": 0}
    first, *steps = (part.strip() for part in found[-1].split(","))

    def number(term: str) -> int | None:
        if term.lstrip("-").isdigit():
            return int(term)
        return results.pop(0) if results else None

    value = number(first)
    if value is None:
        return "lookup", {"name": first}
    for step in steps:
        name, term = step.split(" ")
        other = number(term)
        if other is None:
            return "lookup", {"name": term}
        if not results:
            return name, {"a": value, "b": other}
        value = results.pop(0)
    return "answer", {"number": value}


def invention(words: str, draw: int, *, is_fixed: bool) -> Invention:
    """Return what is made up in a task: fixed by its `words`, or by the `draw` of a call; None in half of them."""
    rng = Random(derive_seed("invention", words if is_fixed else draw))
    made = (rng.choice(("lookup", "answer")), rng.choice(MADE_UP))
    return made if rng.random() < INVENTS else None


def say(is_fixed: bool, prompt: str, draw: int) -> str:
    """Return the next call, with what is made up unless the instructions name it."""
    name, arguments = solve(prompt)
    words = " ".join(PROBLEM.findall(prompt)[:1])
    first = prompt.partition("<|user|>")[0]
    made = invention(words, draw, is_fixed=is_fixed)
    told = first.partition(FAILED)[2]
    if made is not None and made[0] == name and f'"{made[1]}"' not in told:
        arguments = {**arguments, made[1]: "plain"}
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Watched(Wrapped):
    """`inner`, in which a call with a made-up argument that changes anything is counted as carried out."""

    def step(self, action: Action) -> StepResult:
        """Carry out `action`."""
        assert isinstance(self.inner, Calc), "the world is calc"
        before = self.inner.snapshot()[1].num_calls
        result = advance(self.inner, action)
        is_done = self.inner.snapshot()[1].num_calls > before or result.is_terminated
        made = is_made_up(action)
        return replace(result, reward_terms={"made_up": 1.0, "done": float(is_done)}) if made else result


def is_made_up(action: Action) -> bool:
    """Return whether `action` has an argument that was made up."""
    return any(name in MADE_UP for call in action.tool_calls for name in call.arguments)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return whether the wrong call is made again, for each task in which there was one: own, other's, no lesson."""
    world, count = str(options["world"]), int(options["seeds"])
    require_blindfold(Mind(partial(say, True)), world, seed=seed, agent="tools", num=40)
    rows, null = (arms(world, count, seed, is_fixed=is_fixed) for is_fixed in (True, False))
    return [
        {**row, "null_method": other["method"], "null_control": other["control"]}
        for row, other in zip(rows, null, strict=True)
    ]


def arms(world: str, count: int, seed: int, *, is_fixed: bool) -> list[dict[str, float]]:
    """Return what comes of the second attempt at `count` tasks in whose first one a wrong call was made."""

    def wrap(inner: Environment) -> Environment:
        return Watched(inner)

    mind, limits = Mind(partial(say, is_fixed)), Limits(max_repeats=1)
    with play_mind(mind, world, seed=seed, agent="tools", wrap=wrap, limits=limits) as probe:
        first_task = derive_seed("tasks", seed) % 1_000_000
        first = list(flatten_scored(probe.play(probe.tasks(3 * count, split="train", first=first_task))))
        failed = [t for t in first if find_failed_calls(t)][:count]
        tasks = [t.task for t in failed]

        def attempts(calls: Sequence[str] | None) -> list[Trajectory]:
            told = Lessons()
            for task, call in zip(tasks, calls or (), strict=False):
                told = told.add(task, call)
            groups = probe.rollout.groups(
                tasks,
                size=1,
                seed=derive_seed(seed, "second"),
                options=Options(agent=Reflexion(probe.rollout.agent, calls=told)),
            )
            return [group.trajectories[0] for group in groups]

        own = [find_failed_calls(t)[-1] for t in failed]
        rng = Random(derive_seed("other", seed))
        names = [find_made_up(t) for t in failed]
        other = [
            own[rng.choice([k for k, name in enumerate(names) if name[1] != names[place][1]])]
            for place in range(len(failed))
        ]
        found = {"method": attempts(own), "control": attempts(other), "extra.plain": attempts(None)}
    turns = [turn for t in chain(first, *found.values()) for turn in t.turns]
    wrong, done = (sum(turn.reward_terms.get(term, 0.0) for turn in turns) for term in ("made_up", "done"))
    return [
        {
            **{arm: float(names[k] in all_made_up(found[arm][k])) for arm in found},
            "extra.success": float(found["method"][k].is_success),
            "extra.done": done,
            "extra.wrong": wrong,
        }
        for k in range(count)
    ]


def all_made_up(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Return (tool, argument) of all that was made up in an attempt."""
    calls: list[ToolCall] = [call for turn in trajectory.turns for call in turn.action.tool_calls]
    return [(call.name, name) for call in calls for name in call.arguments if name in MADE_UP]


def find_made_up(trajectory: Trajectory) -> tuple[str, str]:
    """Return what was made up last in an attempt."""
    return all_made_up(trajectory)[-1]
