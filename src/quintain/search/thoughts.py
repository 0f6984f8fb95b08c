"""Schedules over graphs of thoughts, which ARIES' policies are compared with, and one that reads scores (2502.21208).

A graph is worked on by levels: the problems that are worked on now, at first the whole. A schedule is a row of steps:
`solve` asks for an answer to each problem of the level, `refine` for a better one in the place of the best, `split`
halves each and goes down, `merge` puts halves together and goes up. These are static: what is done does not depend on
what came of it. `again` is not: it asks once more for an answer to the problem of the level whose best answer has the
lowest score. ``scheduled?steps=split,solve,again,merge`` lets a model say what a schedule says; what may not be done
any more is left out, and at the end it stops.

Differences to the paper: there the adaptive policy is a prompted model alone, and schedules are those of Graph of
Thoughts with searched sizes; `again` and the names of steps are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.engines.protocol import Capability
from quintain.errors import UsageError, suggestion
from quintain.types import Action, Grammar, Observation, as_text
from quintain.worlds.solver.problem import STOP
from quintain.worlds.solver.thoughts import (
    MERGE,
    REFINE,
    SOLVE,
    SPLIT,
    Graph,
    find_answers,
    find_halves,
    read_graph,
)

AGAIN = "again"
STEPS = (SOLVE, REFINE, SPLIT, MERGE, AGAIN)
WHOLE: tuple[int, ...] = (0,)
"""The level at which everything begins."""
UNSOLVED = -1.0
"""Score of a problem without an answer: below all others."""
Read = Callable[[Graph, int], float]
"""(graph, number of an answer) → the score that is read of it"""
_GRAPH = re.compile(r"(?:^\d+ (?:problem|answer) of .*\n)+", re.MULTILINE)


def read_score(graph: Graph, number: int) -> float:
    """Return the score of an answer as it is."""
    return graph[number].score or 0.0


def find_weakest(graph: Graph, level: Sequence[int], read: Read = read_score) -> int:
    """Return the problem of `level` whose best answer has the lowest score, of equal ones the first."""

    def score(problem: int) -> float:
        best = find_answers(graph, problem)[:1]
        return read(graph, best[0]) if best else UNSOLVED

    return min(level, key=score)


def list_level_moves(graph: Graph, level: Sequence[int], step: str, read: Read = read_score) -> list[str]:
    """Return the transformations that `step` is at `level`; some may not be legal yet."""
    if step == REFINE:
        return [f"{REFINE} {best}" for problem in level for best in find_answers(graph, problem)[:1]]
    if step == MERGE:
        return [f"{MERGE} {problem}" for problem in find_wholes(graph, level)]
    if step == AGAIN:
        return [f"{SOLVE} {find_weakest(graph, level, read)}"]
    return [f"{step} {problem}" for problem in level]


def find_wholes(graph: Graph, level: Sequence[int]) -> tuple[int, ...]:
    """Return the problems that those of `level` are halves of, each once; none of the whole."""
    return tuple(dict.fromkeys(of for problem in level if (of := graph[problem].of) is not None))


def change_level(graph: Graph, level: Sequence[int], step: str) -> tuple[int, ...]:
    """Return the level after `step`, where `graph` is what came of it; what was not split stays in its place."""
    if step == SPLIT:
        return tuple(each for problem in level for each in find_halves(graph, problem) or [problem])
    if step == MERGE:
        return find_wholes(graph, level) or tuple(level)
    return tuple(level)


@dataclass(slots=True)
class Schedule:
    """What a row of steps does in an episode: ``Schedule(("split", "solve", "merge")).choose(graph, legal)``."""

    steps: tuple[str, ...]
    level: tuple[int, ...] = WHOLE
    queue: tuple[str, ...] = ()
    """moves of the step at hand that are left"""
    current: str = ""
    read: Read = read_score
    """how it reads the scores of answers"""

    def choose(self, graph: Graph, legal: Sequence[str]) -> str:
        """Return the next move among `legal` in `graph`, which its moves before have led to."""
        while True:
            while self.queue:
                move, self.queue = self.queue[0], self.queue[1:]
                if move in legal:
                    return move
            self.level = change_level(graph, self.level, self.current)
            if not self.steps:
                return STOP if STOP in legal else legal[0]
            self.current, self.steps = self.steps[0], self.steps[1:]
            self.queue = tuple(list_level_moves(graph, self.level, self.current, self.read))


def find_graph(shown: str) -> Graph | None:
    """Return the graph that stands in `shown`; None: there is none."""
    found = _GRAPH.search(shown)
    return None if found is None else read_graph(found[0].rstrip("\n"))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A harness that does what a schedule says: ``scheduled?steps=split,solve,merge+text``."""

    agent: Agent
    steps: str = SOLVE
    """Steps with commas between: solve, refine, split, merge of all problems of a level; again of the weakest."""
    needs: ClassVar[frozenset[Capability]] = frozenset({"tokens"})
    """What the engine must be able to do."""

    def __post_init__(self) -> None:
        """Refuse a step that is none."""
        for step in self.steps.split(","):
            if step not in STEPS:
                raise UsageError(f"scheduled: got the step {step!r}; {suggestion(step, STEPS)}")

    def open(self, brief: Brief) -> ScheduledSession:
        """See `Agent.open`."""
        return ScheduledSession(self.agent, brief, Schedule(tuple(self.steps.split(","))))


class ScheduledSession(Deliberation):
    """An episode of `Scheduled`."""

    def __init__(self, agent: Agent, brief: Brief, schedule: Schedule) -> None:
        """Open the inner session."""
        super().__init__(agent, brief)
        self._schedule = schedule

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; where a graph is shown, nothing but the schedule's move can be sampled."""
        prompt = self._inner.observe(observation, legal_actions)
        graph = find_graph(as_text(observation))
        if graph is None or not legal_actions:
            return prompt
        ids = self._inner.write(Action(text=self._schedule.choose(graph, legal_actions)))
        sampling = prompt.sampling.under(Grammar.of_tokens(ids), is_masked=False)
        return replace(prompt, sampling=replace(sampling, candidates=None, max_tokens=len(ids)))
