"""A graph of thoughts over a list to be sorted, and what may be done to it (ARIES, arXiv 2502.21208; GoT, 2308.09687).

A thought is a problem, a list that is to be sorted, or an answer to one. `split P` halves a problem; `solve P` asks for
an answer to it; `refine A` asks for an answer in the place of one with mistakes; `keep P` leaves of the answers to a
problem the one of the highest score, which asks nobody; `merge P` makes an answer to a problem out of the best answers
to its halves; `stop` hands in the best answer to the whole. Each has what must hold before it, and is refused where
that does not. All but `keep` and `stop` are calls of the solver, of which there are a limited number; with `is_free`
splitting and merging are done by a program, and cost none.

An answer's score is noisy, and is all that tells a right one from a wrong one: .7 for right ones and .5 for wrong ones,
with a deviation of a third of `noise`. What a program merges twice has the same score twice. The graph is a value: what
is done returns another one, `write_graph` and `read_graph` are each other's inverse.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from quintain.errors import DataError
from quintain.types import derive_seed
from quintain.worlds.solver.problem import BEGIN, STOP, read_integers

SPLIT, SOLVE, REFINE, KEEP, MERGE = "split", "solve", "refine", "keep", "merge"
RIGHT_SCORE, WRONG_SCORE = 0.7, 0.5
Slope = Literal["flat", "steep", "even"]
SOLVED: Mapping[Slope, Mapping[int, float]] = {
    "flat": {16: 0.12, 8: 0.06, 4: 0.03, 2: 0.0},
    "steep": {16: 0.97, 8: 0.8, 4: 0.15, 2: 0.05},
    "even": {16: 0.3, 8: 0.3, 4: 0.3, 2: 0.3},
}
"""slope → (size of a list → how often a scripted solver sorts it wrongly)"""
MERGED, IMPROVED, SPOILED = 0.08, 0.5, 0.1
"""How often it merges wrongly, mends a wrong answer (beside what it gets wrong), and spoils a right one."""
LEAST = 4
"""Numbers of a problem that can be split."""
_LINE = re.compile(r"(\d+) (problem|answer) of (\d+|-)(?: \(score (\d\.\d\d)(, dropped)?\))?:((?: \d+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A node: ``Thought(kind="answer", of=0, content=(1, 3), score=.62)``."""

    kind: Literal["problem", "answer"]
    of: int | None
    """an answer's problem, or that of which a problem is a half; None: the whole"""
    content: tuple[int, ...]
    score: float | None = None
    is_dropped: bool = False


Graph = tuple[Thought, ...]


def write_graph(graph: Graph) -> str:
    """Return `graph` in words, a thought a line: ``0 problem of -: 3 1``, ``1 answer of 0 (score 0.62): 1 3``."""
    lines: list[str] = []
    for number, each in enumerate(graph):
        mark = "" if each.score is None else f" (score {each.score:.2f}{', dropped' * each.is_dropped})"
        whole = "-" if each.of is None else str(each.of)
        lines.append(f"{number} {each.kind} of {whole}{mark}:{''.join(f' {n}' for n in each.content)}")
    return "\n".join(lines)


def read_graph(text: str) -> Graph:
    """Return the graph that `text` writes.

    Raises:
        DataError: a line is no thought, or refers to none before it.
    """
    found: list[Thought] = []
    for number, line in enumerate(text.splitlines()):
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) != number or (match[3] != "-" and int(match[3]) >= number):
            raise DataError(
                f"graph of thoughts: got {line!r:.60} as line {number}; write it as `write_graph` does"
            )
        found.append(
            Thought(
                kind="problem" if match[2] == "problem" else "answer",
                of=None if match[3] == "-" else int(match[3]),
                content=read_integers(match[6]),
                score=None if match[4] is None else float(match[4]),
                is_dropped=match[5] is not None,
            )
        )
    return tuple(found)


def find_halves(graph: Graph, problem: int) -> list[int]:
    """Return the halves into which `problem` was split; none: it was not."""
    return [k for k, each in enumerate(graph) if each.kind == "problem" and each.of == problem]


def find_answers(graph: Graph, problem: int) -> list[int]:
    """Return the answers to `problem` that are not dropped, the one of the highest score first."""
    found = [k for k, t in enumerate(graph) if t.kind == "answer" and t.of == problem and not t.is_dropped]
    return sorted(found, key=lambda k: -(graph[k].score or 0.0))


def list_moves(graph: Graph) -> list[str]:
    """Return every transformation of `graph` whose preconditions hold, in the order of its thoughts."""
    moves: list[str] = []
    for number, each in enumerate(graph):
        if each.kind == "answer":
            moves += [] if each.is_dropped else [f"{REFINE} {number}"]
            continue
        halves = find_halves(graph, number)
        moves.append(f"{SOLVE} {number}")
        moves += [f"{SPLIT} {number}"] if not halves and len(each.content) >= LEAST else []
        moves += [f"{KEEP} {number}"] if len(find_answers(graph, number)) > 1 else []
        moves += [f"{MERGE} {number}"] if halves and all(find_answers(graph, k) for k in halves) else []
    return [*moves, STOP] if find_answers(graph, 0) else moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """A list to be sorted, and the graph of what was thought of it so far; see `Problem`."""

    graph: Graph
    most: int
    """calls of the solver that there are"""
    slope: Slope
    """how a scripted solver's errors rise with the length of a list"""
    errors: float = 1.0
    """factor on the rates at which a scripted solver sorts and merges wrongly"""
    noise: float = 0.5
    is_free: bool = False
    """whether a program splits and merges, at no call"""
    calls: int = 0
    seed: int = 0

    @classmethod
    def draw(
        cls,
        rng: Random,
        *,
        size: int,
        most: int,
        errors: float,
        noise: float,
        slope: Slope | Literal["mixed"],
        is_free: bool,
        seed: int,
    ) -> Sorting:
        """Return a list of `size` numbers; `mixed` slopes are flat in half of the lists and steep in the others."""
        whole = Thought(kind="problem", of=None, content=tuple(rng.choices(range(1, 100), k=size)))
        own: Slope = rng.choice(("flat", "steep")) if slope == "mixed" else slope
        return cls(
            graph=(whole,), most=most, slope=own, errors=errors, noise=noise, is_free=is_free, seed=seed
        )

    @property
    def content(self) -> tuple[int, ...]:
        """What there is to know of the problem before anything is done."""
        return self.graph[0].content

    @property
    def process(self) -> float:
        """See `Problem`: nothing is known before the end."""
        return 0.0

    @property
    def is_right(self) -> bool:
        """See `Problem`: whether the best answer to the whole is right."""
        answers = find_answers(self.graph, 0)
        return bool(answers) and self.is_answer_right(answers[0])

    def is_answer_right(self, number: int) -> bool:
        """Return whether the answer `number` is its problem, sorted."""
        each = self.graph[number]
        return each.of is not None and list(each.content) == sorted(self.graph[each.of].content)

    def describe(self) -> str:
        """See `Problem`."""
        left = self.most - self.calls
        return f"{write_graph(self.graph)}\nCalls left: {left}. May be done: {', '.join(self.legal())}."

    def legal(self) -> tuple[str, ...]:
        """See `Problem`; without a call left, what costs none, and `stop` even without an answer."""
        moves = list_moves(self.graph)
        if self.calls < self.most:
            return tuple(moves)
        return (*(move for move in moves if self._is_free(move.partition(" ")[0])), STOP)

    def _is_free(self, name: str) -> bool:
        """Return whether a transformation is no call of the solver, other than `stop`."""
        return name == KEEP or (self.is_free and name in (SPLIT, MERGE))

    def ask(self, action: str, said: Sequence[str]) -> str:
        """See `Problem`."""
        name, _, number = action.partition(" ")
        if said or name == BEGIN or self._is_free(name):
            return ""
        each = self.graph[int(number)]
        words = _words(each.content)
        if name == SPLIT:
            return f"Split this list into two lists of {len(each.content) // 2}, with ; between: {words}"
        if name == SOLVE:
            return f"Sort these numbers from low to high: {words}"
        if name == REFINE:
            whole = self.graph[int(each.of or 0)].content
            return f"{_words(whole)} was sorted as {words}. Mend it: write all numbers from low to high."
        parts = "; ".join(_words(part) for part in self._parts(int(number)))
        return f"Merge these sorted lists into one, from low to high: {parts}"

    def answer(self, action: str, said: Sequence[str], rng: Random) -> str:
        """See `Problem`."""
        name, _, number = action.partition(" ")
        each = self.graph[int(number)]
        if name == SPLIT:
            return self._split(int(number))
        if name == MERGE:
            merged = sorted(n for part in self._parts(int(number)) for n in part)
            return _words(_misplace(merged, rng) if rng.random() < MERGED * self.errors else merged)
        whole = each if name == SOLVE else self.graph[int(each.of or 0)]
        rate = self.rate_of_size(len(whole.content))
        if name == REFINE and self.is_answer_right(int(number)):
            rate = SPOILED
        elif name == REFINE:
            rate = 1 - IMPROVED * (1 - rate)
        right = sorted(whole.content)
        return _words(_misplace(right, rng) if rng.random() < rate else right)

    def rate_of_size(self, size: int) -> float:
        """Return how often the scripted solver sorts a list of `size` numbers wrongly."""
        rates = SOLVED[self.slope]
        nearest = min(rates, key=lambda known: abs(known - size))
        return min(1.0, rates[nearest] * self.errors)

    def apply(self, action: str, said: Sequence[str]) -> Sorting:
        """See `Problem`; an answer that is none, such as halves of other numbers, costs its call and adds nothing."""
        name, _, number = action.partition(" ")
        if name == BEGIN:
            return self
        place = int(number)
        if name == KEEP:
            best = find_answers(self.graph, place)[0]
            return replace(
                self,
                graph=tuple(
                    replace(t, is_dropped=True) if t.kind == "answer" and t.of == place and k != best else t
                    for k, t in enumerate(self.graph)
                ),
            )
        spent = replace(self, calls=self.calls + (not self._is_free(name)))
        if self._is_free(name):
            merged = heapq.merge(*self._parts(place)) if name == MERGE else ()
            said = [self._split(place) if name == SPLIT else _words(tuple(merged))]
        if name == SPLIT:
            parts = [read_integers(part) for part in said[0].split(";")]
            whole = sorted(n for part in parts for n in part)
            if len(parts) != 2 or not all(parts) or whole != sorted(self.graph[place].content):
                return spent
            halves = tuple(Thought(kind="problem", of=place, content=part) for part in parts)
            return replace(spent, graph=(*self.graph, *halves))
        content = read_integers(said[0])
        if not content:
            return spent
        of = place if name != REFINE else self.graph[place].of
        graph, old = list(self.graph), place
        if name == REFINE:
            graph[old] = replace(graph[old], is_dropped=True)
        new = Thought(kind="answer", of=of, content=content)
        made = replace(spent, graph=(*graph, new))
        return made._grade_last("program" if self._is_free(name) else str(len(graph)))

    def _grade_last(self, source: str) -> Sorting:
        """Return the same with a score for the last answer, the same for equal answers of one `source`."""
        number = len(self.graph) - 1
        each = self.graph[number]
        rng = Random(derive_seed(self.seed, "score", source, each.of or 0, _words(each.content)))
        mean = RIGHT_SCORE if self.is_answer_right(number) else WRONG_SCORE
        score = round(min(1.0, max(0.0, rng.gauss(mean, self.noise / 3))), 2)
        return replace(self, graph=(*self.graph[:-1], replace(each, score=score)))

    def choose(self) -> str:
        """See `Problem`: the whole at once where the solver does not err much in it, else quarters."""
        if self.is_right:
            return STOP
        move = f"{SOLVE} 0" if self.rate_of_size(len(self.content)) < 0.5 else self._choose_below(0)
        return move if move in self.legal() else STOP

    def _choose_below(self, problem: int) -> str:
        """Return what is done about `problem` where it is to be split, as far as that goes with a right answer."""
        content = self.graph[problem].content
        if len(content) < 2 * LEAST:
            return f"{SOLVE} {problem}"
        halves = find_halves(self.graph, problem)
        if not halves:
            return f"{SPLIT} {problem}"
        for half in halves:
            best = find_answers(self.graph, half)[:1]
            if not (best and self.is_answer_right(best[0])):
                return self._choose_below(half)
        return f"{MERGE} {problem}"

    def _split(self, problem: int) -> str:
        """Return the halves of a problem in words."""
        content = self.graph[problem].content
        half = len(content) // 2
        return f"{_words(content[:half])}; {_words(content[half:])}"

    def _parts(self, problem: int) -> list[tuple[int, ...]]:
        """Return the best answers to the halves of `problem`."""
        return [
            self.graph[find_answers(self.graph, half)[0]].content for half in find_halves(self.graph, problem)
        ]


def _words(content: Sequence[int]) -> str:
    """Return numbers with spaces between."""
    return " ".join(map(str, content))


def _misplace(right: Sequence[int], rng: Random) -> list[int]:
    """Return `right` with one number too many by one, which makes it wrong in any case."""
    place = rng.randrange(len(right))
    return [*right[:place], right[place] + 1, *right[place + 1 :]]
