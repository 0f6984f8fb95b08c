"""Memento: is it the outcomes of its own episodes that teach which cases help, where likeness of words misleads?

Errands in words: "Please polish the lamp at the pier." Which of six tools is right is a matter of the verb, and three
verbs have the same one; things and places mean nothing. A frozen agent is told four cases and does what one of those
that were solved did, drawn evenly. So a case helps if its verb has the same tool, while likeness of words prefers the
same thing and place as much. The bank begins with solved errands; then training errands are played, each told cases
that are drawn by the learned value, and held-out errands are told the best ones. In the control the outcomes are
permuted among the episodes of a step before anything is learned from them. The rival reads by likeness of words, and
keeps its cases alike. In the null world every tool is right, so that every case helps alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from quintain.agents.cased import FAILED, WORKED, CaseMemory, case_words
from quintain.credit_lab.permute import derange
from quintain.environments.splitting import is_eval
from quintain.types import (
    Action,
    Completion,
    Group,
    Score,
    Split,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
    derive_seed,
)

VERBS = (
    "polish",
    "mend",
    "paint",
    "lift",
    "carry",
    "weigh",
    "count",
    "sort",
    "stack",
)
THINGS = (
    "lamp",
    "chair",
    "rope",
    "crate",
    "bell",
    "wheel",
    "basket",
    "ladder",
    "bottle",
    "sail",
    "drum",
    "cart",
)
PLACES = (
    "pier",
    "mill",
    "barn",
    "gate",
    "tower",
    "bridge",
    "well",
    "inn",
    "square",
    "forge",
    "yard",
    "cellar",
)
TOOLS = ("amber", "birch", "cedar")
DONE = " Done: "
WRITTEN = Completion(token_ids=(0,), logprobs=(), stop="stop")
"""What stands for the tokens of an answer."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications: success on held-out errands of all ways to read."""
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        found = arms(options, derive_seed("memento", seed, number))
        fewer = {**options, "train": int(options["train"]) // 4, "steps": int(options["steps"]) // 4}
        null = arms(fewer, derive_seed("null", seed, number), is_null=True)
        rows.append({**found, "null_method": null["method"], "null_control": null["control"]})
    return rows


class Errands:
    """Errands of one replication: which verb takes which tool is drawn."""

    def __init__(self, seed: int, *, is_null: bool) -> None:
        verbs = list(VERBS)
        Random(seed).shuffle(verbs)
        self.tool_of = {verb: TOOLS[k % len(TOOLS)] for k, verb in enumerate(verbs)}
        self.is_null, self.seed = is_null, seed

    def words(self, task: Task) -> str:
        """Return the errand of `task`; sentences of one split are never of the other."""
        rng = Random(task.seed)
        while True:
            thing, place = rng.choice(THINGS), rng.choice(PLACES)
            words = f"About the {thing} at the {place}: {rng.choice(VERBS)} the {thing} at the {place}."
            if is_eval(words) == task.is_held_out:
                return words

    def tasks(self, split: Split, count: int, first: int = 0) -> list[Task]:
        """Return `count` tasks of `split`."""
        return [
            Task(
                id=f"errands/{split}/{k}",
                environment="errands",
                seed=derive_seed(self.seed, split, k),
                split=split,
            )
            for k in range(first, first + count)
        ]

    def episode(self, task: Task, tool: str) -> Trajectory:
        """Return the episode in which `tool` is taken."""
        words = self.words(task)
        is_right = self.is_null or tool == self.tool_of[verb_of(words)]
        turn = Turn(
            observation=as_content(words), prompt_ids=(0,), completion=WRITTEN, action=Action(text=tool)
        )
        score = Score(value=float(is_right), is_success=is_right)
        return Trajectory(
            task=task, turns=(turn,), outcome=score, stop=Stop.TERMINATED, seed=0, group=task.id, index=0
        )

    def play(self, task: Task, memory: CaseMemory) -> Trajectory:
        """Return the episode of who does what one of the solved cases did that `memory` tells; without one, guesses."""
        told = case_words(memory.read(task, self.words(task)))
        lines = told.partition(WORKED)[2].partition(FAILED)[0].splitlines()
        done = [line.rpartition(DONE)[2] for line in lines if DONE in line]
        return self.episode(task, Random(derive_seed(self.seed, task.id)).choice(done or TOOLS))


def arms(options: Mapping[str, Any], seed: int, *, is_null: bool = False) -> dict[str, float]:
    """Return the success of cases that were learned, learned from others' outcomes, and read by likeness."""
    errands = Errands(seed, is_null=is_null)
    known, train = (
        errands.tasks("train", int(options[name]), first) for name, first in (("known", 0), ("train", 10_000))
    )
    test = errands.tasks("eval", int(options["test"]))

    def learn(memory: CaseMemory, *, is_permuted: bool = False) -> CaseMemory:
        memory.update(
            groups([errands.episode(task, errands.tool_of[verb_of(errands.words(task))]) for task in known])
        )
        size = len(train) // int(options["steps"])
        for first in range(0, len(train), size):
            episodes = [errands.play(task, memory) for task in train[first : first + size]]
            if is_permuted:
                order = derange(len(episodes), derive_seed(seed, first))
                episodes = [
                    replace(t, outcome=episodes[k].outcome) for t, k in zip(episodes, order, strict=True)
                ]
            memory.update(groups(episodes))
        return memory

    learned = learn(CaseMemory())
    found = {
        "method": rate(errands, test, learned),
        "control": rate(errands, test, learn(CaseMemory(), is_permuted=True)),
    }
    if is_null:
        return found
    helps = 0
    for task in test:
        words = errands.words(task)
        helps += learned.read(task, words)[0].entry.text == errands.tool_of[verb_of(words)]
    likeness = rate(errands, test, learn(CaseMemory(by="likeness")))
    return {**found, "extra.likeness": likeness, "extra.first_helps": helps / len(test)}


def verb_of(words: str) -> str:
    """Return what is to be done in an errand."""
    return words.partition(": ")[2].partition(" ")[0]


def groups(episodes: Sequence[Trajectory]) -> list[Group]:
    """Return each of `episodes` as a group."""
    return [Group(task=t.task, trajectories=(t,)) for t in episodes]


def rate(errands: Errands, tasks: Sequence[Task], memory: CaseMemory) -> float:
    """Return the share of `tasks` that are solved by who is told what `memory` finds."""
    return sum(errands.play(task, memory).is_success for task in tasks) / len(tasks)
