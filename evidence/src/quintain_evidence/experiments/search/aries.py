"""ARIES: does a policy that reads a graph's scores sort more lists with twelve calls than any fixed schedule does?

Lists of 32 numbers and a scripted solver (`solver?kind=sort&size=32&slope=steep&free=true`) that gets whole lists wrong
and one of five pieces of four numbers; a program splits and merges. Eight calls solve each piece once. The policy
spends the four that are left, one after the other, on the piece whose best answer has the lowest score (`again` of
`quintain.search.thoughts`); scores order right before wrong in four of five pairs. In the control the same policy reads
of each answer the score of another list's answer to a problem of equal size; what is merged is the best by true
scores in both. The rival is the best of all fixed schedules: every row of up to eight steps by levels, and every other
way to spend twelve calls on the pieces, repeated or halved again, chosen on training lists. In the null world scores
say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any

from quintain.search.thoughts import AGAIN, STEPS, Read, Schedule
from quintain.types import derive_seed
from quintain.worlds.solver.problem import STOP
from quintain.worlds.solver.thoughts import MERGE, REFINE, SOLVE, SPLIT, Graph, Sorting

SIZE, CALLS, ERRORS, NOISE, NO_SENSE = 32, 12, 4 / 3, 0.5, 8.0
PIECES = range(7, 15)
"""Numbers of the eight pieces, where all is split three times."""
DOWN, UP = [f"{SPLIT} {k}" for k in range(7)], [f"{MERGE} {k}" for k in (3, 4, 5, 6, 1, 2, 0)]
ADAPTIVE = Schedule((*[SPLIT] * 3, SOLVE, *[AGAIN] * 4, *[MERGE] * 3))
LONGEST = 8
"""Steps of a schedule."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications: the share of held-out lists that each arm sorts."""
    count, tried = int(options["problems"]), int(options["tried"])
    by_level, spendings = list_schedules(), list_spendings()
    best = choose_schedule(by_level, spendings, derive_seed("schedules", seed), tried)
    schedules = [*by_level, *spendings]
    faultless = [
        follow(draw(derive_seed(seed, "exact", k), errors=0.0), each).is_right
        for k, each in enumerate(schedules)
        if REFINE not in each.steps
    ]
    once = {"extra.faultless": fmean(faultless), "extra.schedules": float(len(schedules))}
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("aries", seed, number)
        row = dict(once)
        for prefix, noise in (("", NOISE), ("null_", NO_SENSE)):
            lists = [draw(derive_seed(own, "eval", k), noise=noise) for k in range(count)]
            known = [follow(draw(derive_seed(own, "train", k), noise=noise), ADAPTIVE) for k in range(tried)]
            found = [follow(each, ADAPTIVE) for each in lists]
            scores = collect_scores(known)
            dealt = [
                follow(each, replace(ADAPTIVE, read=deal(scores, derive_seed(own, k))))
                for k, each in enumerate(lists)
            ]
            row[f"{prefix}method"] = fmean(each.is_right for each in found)
            row[f"{prefix}control"] = fmean(each.is_right for each in dealt)
            if not prefix:
                fixed = [follow(each, best) for each in lists]
                row["extra.static"] = fmean(each.is_right for each in fixed)
                row["extra.most_calls"] = float(max(each.calls for each in found))
                row["extra.ordered"] = order_of(found)
        rows.append(row)
    return rows


def draw(seed: int, *, noise: float = NOISE, errors: float = ERRORS) -> Sorting:
    """Return a list to be sorted."""
    return Sorting.draw(
        Random(seed), size=SIZE, most=CALLS, errors=errors, noise=noise, slope="steep", is_free=True,
        seed=seed % (1 << 40),
    )  # fmt: skip


def follow(problem: Sorting, schedule: Schedule) -> Sorting:
    """Return what came of `problem` by `schedule`, the scripted solver being asked."""
    own = replace(schedule)
    while (move := own.choose(problem.graph, problem.legal())) != STOP:
        rng = Random(derive_seed(problem.seed, "solver", problem.calls))
        problem = problem.apply(move, [problem.answer(move, (), rng)] if problem.ask(move, ()) else [])
    return problem


def choose_schedule(
    by_level: Sequence[Schedule], spendings: Sequence[Schedule], seed: int, count: int
) -> Schedule:
    """Return what sorts most of 16 x `count` training lists: one of the eight best by level, or of the spendings."""

    def score(schedule: Schedule, which: str, size: int) -> float:
        return fmean(follow(draw(derive_seed(seed, which, k)), schedule).is_right for k in range(size))

    best = sorted(by_level, key=lambda each: -score(each, "few", count))[:8]
    return max((*best, *spendings), key=lambda each: score(each, "many", 16 * count))


def list_schedules() -> list[Schedule]:
    """Return every row of up to `LONGEST` steps that can all be done with `CALLS` calls and that has an answer."""
    found: list[Schedule] = []

    def extend(steps: tuple[str, ...], size: int, solved: tuple[bool, ...], calls: int) -> None:
        if solved == (True,):
            found.append(Schedule(steps))
        for step in STEPS if len(steps) < LONGEST else ():
            if step == SPLIT and SIZE // size >= 4 and steps[-1:] != (MERGE,):
                extend((*steps, step), 2 * size, (*solved, False), calls)
            elif step == MERGE and size > 1 and solved[-1]:
                extend((*steps, step), size // 2, (*solved[:-2], True), calls)
            elif calls + size <= CALLS and (step == SOLVE or (step == REFINE and solved[-1])):
                extend((*steps, step), size, (*solved[:-1], True), calls + size)

    extend((), 1, (False,), 0)
    return found


def list_spendings() -> list[Schedule]:
    """Return every other way to solve the eight pieces with `CALLS` calls: some halved again, some several times."""
    found: list[Schedule] = []
    extra = CALLS - len(PIECES)
    for num_halved in range(extra + 1):
        for more in partitions(extra - num_halved, len(PIECES) - num_halved):
            moves, number = [*DOWN], PIECES.stop
            for place, piece in enumerate(PIECES):
                if place < num_halved:
                    moves += [
                        f"{SPLIT} {piece}",
                        f"{SOLVE} {number}",
                        f"{SOLVE} {number + 1}",
                        f"{MERGE} {piece}",
                    ]
                    number += 5  # two halves, two answers, one that is merged
                else:
                    times = 1 + (*more, *[0] * len(PIECES))[place - num_halved]
                    moves += [f"{SOLVE} {piece}"] * times
                    number += times
            found.append(Schedule((), queue=(*moves, *UP)))
    return found


def partitions(total: int, places: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write `total` as up to `places` falling numbers: 2 as (2,) and (1, 1)."""
    if total == 0:
        yield ()
    for first in range(min(total, most or total), 0, -1) if places else ():
        yield from ((first, *rest) for rest in partitions(total - first, places - 1, first))


def collect_scores(known: Sequence[Sorting]) -> Mapping[int, list[float]]:
    """Return size of a problem → the scores of answers to such ones."""
    found: dict[int, list[float]] = {}
    for problem in known:
        for each in problem.graph:
            if each.score is not None:
                found.setdefault(len(problem.graph[each.of or 0].content), []).append(each.score)
    return found


def deal(scores: Mapping[int, list[float]], seed: int) -> Read:
    """Return who reads of each answer the score of another list's answer to a problem of that size."""

    def read(graph: Graph, number: int) -> float:
        return Random(derive_seed(seed, number)).choice(scores[len(graph[graph[number].of or 0].content)])

    return read


def order_of(known: Sequence[Sorting]) -> float:
    """Return in which share of pairs of answers to pieces the right one has the higher score."""
    scores: dict[bool, list[float]] = {True: [], False: []}
    for problem in known:
        for number, each in enumerate(problem.graph):
            if each.of in PIECES:
                scores[problem.is_answer_right(number)].append(each.score or 0.0)
    right, wrong = scores[True][:400], scores[False][:400]
    return fmean(float(a > b) + (a == b) / 2 for a in right for b in wrong)
