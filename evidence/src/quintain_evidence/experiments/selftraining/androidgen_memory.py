"""AndroidGen's memory: is the solved task that is most like one's own worth more than another's?

The expert has solved training lands of `craft`; what it did is remembered by their words. For each held-out land the
memory finds the one most like it, and a frozen policy is told its words: it takes the told actions in their order,
leaving out what is not legal, and acts at random where none of them is. In the control held-out tasks are told what was
found for one another, so that the same is told in all. In the null world the memory's words are permuted among what was
done, so that what is found is of any land. Beside them: nothing told, and memories of fewer lands.

The policy stands for a model that follows what it is told. It learned nothing, so what is measured is what is found.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from quintain.agents.experience import Experience
from quintain.credit_lab.permute import derange
from quintain.environments.baselines import Policy, expert, play, random_action
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Legal, begin
from quintain.errors import UsageError
from quintain.types import (
    Action,
    Completion,
    Group,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
    as_text,
    derive_seed,
)

DONE = " Done: "
"""What stands before the actions of a solved task, as an agent is told of it."""
WRITTEN = Completion(token_ids=(0,), logprobs=(), stop="stop")
"""What stands for the tokens of a turn: a memory reads its words alone, but takes no episode in which nobody spoke."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` held-out tasks, each with whether it was solved by who was told what was found, and another's."""
    sizes = [int(size) for size in options["memories"]]
    with closing(find(str(options["world"]))()) as environment:
        first = derive_seed("remembered", seed) % (1 << 40)
        known = [solved(environment, environment.task("train", first + k)) for k in range(sizes[-1])]
        first = derive_seed("held out", seed) % (1 << 40)
        tasks = [environment.task("eval", first + k) for k in range(int(options["seeds"]))]
        begins = [as_text(begin(environment, task)) for task in tasks]

        def outcomes(told: Sequence[str]) -> list[float]:
            return [
                float(play(environment, task, follower(words, derive_seed(seed, task.id))).is_success)
                for task, words in zip(tasks, told, strict=True)
            ]

        told = {size: found(known[:size], tasks, begins) for size in sizes}
        unrelated = found(permuted(known, derive_seed(seed, "words")), tasks, begins)
        order = derange(len(tasks), derive_seed(seed, "others"))
        columns = {
            "method": outcomes(told[sizes[-1]]),
            "control": outcomes([told[sizes[-1]][place] for place in order]),
            "null_method": outcomes(unrelated),
            "null_control": outcomes([unrelated[place] for place in order]),
            "extra.none": outcomes([""] * len(tasks)),
            **{f"extra.memory{size}": outcomes(told[size]) for size in sizes[:-1]},
        }
    columns[f"extra.memory{sizes[-1]}"] = columns["method"]
    columns["extra.same_goal"] = [
        float(goal(own) in words) for own, words in zip(begins, told[sizes[-1]], strict=True)
    ]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{**row, "extra.over_none": row["method"] - row["extra.none"]} for row in rows]


def solved(environment: Environment, task: Task) -> Trajectory:
    """Return the expert's episode of `task`, as it is recorded.

    Raises:
        UsageError: the expert does not solve it.
    """
    said: list[Action] = []

    def watched(environment: Environment, observation: str) -> Action:
        said.append(expert(environment, observation))
        return said[-1]

    episode = play(environment, task, watched)
    if not episode.is_success:
        raise UsageError(
            f"an episode to remember of {task.id}: got one that failed; give a world whose expert wins"
        )
    turns = tuple(
        Turn(
            observation=as_content(as_text(shown)),
            prompt_ids=(0,),
            completion=WRITTEN,
            action=action,
        )
        for shown, action in zip(episode.observations, said, strict=False)
    )
    score = Score(value=episode.total, is_success=True)
    return Trajectory(
        task=task, turns=turns, outcome=score, stop=Stop.TERMINATED, seed=0, group=task.id, index=0
    )


def found(known: Sequence[Trajectory], tasks: Sequence[Task], begins: Sequence[str]) -> list[str]:
    """Return what an agent is told in each of `tasks`, out of a memory of `known`.

    Raises:
        UsageError: nothing is like one of them.
    """
    experience = Experience()
    experience.update([Group(task=t.task, trajectories=(t,)) for t in known])
    told: list[str] = []
    for task, words in zip(tasks, begins, strict=True):
        best = experience.find(task.id, words)
        if best is None:
            raise UsageError(
                f"the solved task most like {task.id}: got none; give a world whose tasks share words"
            )
        told.append(best[1].words())
    return told


def permuted(known: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `known` with what each began with permuted among them, so that likeness says nothing of what was done."""
    order = derange(len(known), seed)
    return [
        replace(t, turns=(replace(t.turns[0], observation=known[place].turns[0].observation), *t.turns[1:]))
        for t, place in zip(known, order, strict=True)
    ]


def follower(told: str, seed: int) -> Policy:
    """Return a policy that takes the actions it is `told` in their order, without those that are not legal.

    Where none of what is left is legal, it acts at random.
    """
    left = told.rpartition(DONE)[2].rstrip(".").split("; ") if told else []
    rng = random.Random(seed)

    def act(environment: Environment, observation: str) -> Action:
        assert isinstance(environment, Legal), "craft lists its legal actions"
        legal = environment.legal_actions()
        place = next((place for place, text in enumerate(left) if text in legal), None)
        return random_action(environment, rng, observation) if place is None else Action(text=left.pop(place))

    return act


def goal(begins: str) -> str:
    """Return the sentence of a land that names its goal: ``Goal: stone sword.``"""
    return f"{begins.partition('.')[0]}."
