"""AgentGen: is an evolved task harder for somebody who has to choose, and an easier one easier?

Parents are tasks of drawn domains that a fixed, bounded solver sometimes solves: greedy best-first search by the number
of goal facts that are missing, thirty expansions, ten orders of equals. Evolving measures shortest plans and knows
nothing of that solver. A parent counts where the solver fails less on its easier task and more on its harder one. The
control makes as many edits of the goal at random: a fact more, a fact less, or another one, with a plan as well. In the
null world tasks are one step long: evolving returns none.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from quintain.types import derive_seed
from quintain.worlds.plan.drawn import draw_scene, draw_task, easier, extend_goals, harder, length, steps_of
from quintain.worlds.plan.strips import Atom, Domain, Predicate, Puzzle, Rule

EXPANSIONS, ORDERS = 30, 10
LOW, HIGH = 0.2, 0.8
"""Failures of the solver on a parent: below and above there is room for others."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return for each parent whether failures are ordered, for what is evolved and for random edits."""
    rng = random.Random(derive_seed("agent gen", seed))
    found: list[dict[str, float]] = []
    tried = 0
    while len(found) < int(options["seeds"]):
        tried += 1
        parent = draw_task(draw_scene(rng), rng)
        if parent is None or not LOW <= failure(parent) <= HIGH:
            continue
        easy, hard = easier(parent, rng), harder(parent, rng)
        row = {
            "method": ordered(easy, parent, hard),
            "control": ordered(edited(parent, rng), parent, edited(parent, rng)),
            "extra.evolved": float(easy is not None and hard is not None),
            **null_pair(rng),
        }
        if hard is not None:
            row["extra.branching"] = branching(hard) / branching(parent)
            row["extra.longer"] = float(length(hard) - length(parent))
        found.append(row)
    found[0]["extra.parents"] = len(found) / tried
    return found


def ordered(easy: Puzzle | None, parent: Puzzle, hard: Puzzle | None) -> float:
    """Return 1 where the solver fails less on `easy` than on `parent`, and more on `hard`; 0 where one is missing."""
    if easy is None or hard is None:
        return 0.0
    return float(failure(easy) < failure(parent) < failure(hard))


def failure(task: Puzzle) -> float:
    """Return the share of orders in which the bounded solver finds no plan."""
    return fmean(float(not solves(task, order)) for order in range(ORDERS))


def solves(task: Puzzle, order: int) -> bool:
    """Whether greedy best-first search reaches the goal; equals are taken in an order drawn from `order`."""
    problem, rng = task.problem, random.Random(derive_seed("order", order))
    queue = [((problem.goal & ~problem.start).bit_count(), rng.random(), problem.start)]
    seen = {problem.start}
    for _ in range(EXPANSIONS):
        if not queue:
            return False
        _, _, state = heapq.heappop(queue)
        for _, needs, adds, deletes in problem.operators:
            after = state & ~deletes | adds
            if state & needs == needs and after not in seen:
                if problem.is_solved(after):
                    return True
                seen.add(after)
                heapq.heappush(queue, ((problem.goal & ~after).bit_count(), rng.random(), after))
    return False


def edited(task: Puzzle, rng: random.Random) -> Puzzle | None:
    """Return `task` with one fact of its goal more, less or changed, by chance, and a plan still."""
    left = rng.choice(task.goal)
    fewer = replace(task, goal=tuple(atom for atom in task.goal if atom != left))
    made = {"more": [*extend_goals(task)], "less": [fewer], "other": [*extend_goals(fewer)]}
    kinds = sorted(made)
    for kind in rng.sample(kinds, len(kinds)):
        able = [other for other in made[kind] if steps_of(other, task) and set(other.goal) != set(task.goal)]
        if able:
            return rng.choice(able)
    return None


def branching(task: Puzzle) -> float:
    """Return the mean number of actions that can be taken along a shortest plan."""
    problem, state, found = task.problem, task.problem.start, list[int]()
    for words in problem.plan(state) or ():
        found.append(len(problem.applicable(state)))
        after = problem.after(state, words)
        assert after is not None, "plans can be carried out"
        state = after
    return fmean(found)


def null_pair(rng: random.Random) -> dict[str, float]:
    """Return the same of a task of one step, in a domain whose things can only be marked."""
    domain = Domain(
        ("thing",),
        (Predicate("bare", ("thing",), "{} bare"), Predicate("marked", ("thing",), "{} marked")),
        (Rule("mark {x}", (("x", "thing"),), (Atom("bare", ("x",)),), (Atom("marked", ("x",)),)),),
    )
    names = ("mug", "boot", "drum")
    task = Puzzle(
        domain,
        tuple((name, "thing") for name in names),
        (Atom("bare", ("mug",)), Atom("marked", ("boot",)), Atom("marked", ("drum",))),
        (Atom("marked", ("mug",)),),
    )
    easy, hard = easier(task, rng), harder(task, rng)
    return {
        "null_method": ordered(easy, task, hard),
        "null_control": ordered(edited(task, rng), task, edited(task, rng)),
        "extra.null_evolved": float(easy is not None or hard is not None),
    }
