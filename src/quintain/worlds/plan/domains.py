"""The domains of `plan`: blocks and logistics, their actions and how problems are drawn.

Both are those of the International Planning Competition. A `Case` is small frozen data that says all there is to know
of a task; `problem_of` grounds it, once.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from quintain.worlds.plan.problem import Problem, Schema
from quintain.worlds.plan.strips import Puzzle

Domain = Literal["blocks", "logistics"]
LETTERS = "abcdefgh"
MAX_BLOCKS = 6
CITIES = "xyz"
PLANE = "plane"
EMPTY = "hand empty"
TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A task: ``Case(domain="blocks", things=("a", "b"), start=("a on table", ...), goal=("a on b",))``."""

    domain: Domain
    things: tuple[str, ...]
    """blocks, or packages"""
    start: tuple[str, ...]
    goal: tuple[str, ...]
    num_cities: int = 0
    fuel: int = -1
    """Moves that all vehicles may make together; -1 for any number."""
    is_irreversible: bool = False


class CaseShape(NamedTuple):
    """The options that a case is drawn by."""

    domain: Domain
    blocks: int
    packages: int
    cities: int
    is_irreversible: bool


@lru_cache(maxsize=64)
def problem_of(case: Case | Puzzle) -> Problem:
    """Return the grounded problem of `case`; it remembers the distances it measured."""
    if isinstance(case, Puzzle):
        return case.problem
    schemas = _blocks(case) if case.domain == "blocks" else _logistics(case)
    return Problem(schemas, case.start, case.goal)


def draw_case(shape: CaseShape, rng: random.Random) -> Case:
    """Return a case of `shape` whose goal does not hold at the start."""
    draw = _draw_blocks if shape.domain == "blocks" else _draw_logistics
    while True:
        case = draw(shape, rng)
        if not set(case.goal) <= set(case.start):
            return _with_fuel(case) if shape.is_irreversible and case.domain == "logistics" else case


def _with_fuel(case: Case) -> Case:
    """Return `case` with as much fuel as a shortest plan takes."""
    plan = problem_of(case).plan(problem_of(case).start) or ()
    fuel = sum(words.startswith(("drive", "fly")) for words in plan)
    return Case(
        domain=case.domain,
        things=case.things,
        start=(*case.start, f"fuel {fuel}"),
        goal=case.goal,
        num_cities=case.num_cities,
        fuel=fuel,
        is_irreversible=True,
    )


def _draw_blocks(shape: CaseShape, rng: random.Random) -> Case:
    """Return two arrangements of blocks; the goal names what lies on what, but not what is on the table."""
    things = tuple(sorted(rng.sample(LETTERS, shape.blocks)))
    on = _towers(things, rng)
    clear = [f"{block} clear" for block in things if not any(fact.endswith(f" on {block}") for fact in on)]
    loose = [f"{block} loose" for block in things] if shape.is_irreversible else []
    goal = [fact for fact in _towers(things, rng) if not fact.endswith(TABLE)]
    return Case(
        domain="blocks",
        things=things,
        start=(*on, EMPTY, *clear, *loose),
        goal=tuple(goal),
        is_irreversible=shape.is_irreversible,
    )


def _towers(things: tuple[str, ...], rng: random.Random) -> list[str]:
    """Return what lies on what in a random arrangement, in the order of the blocks."""
    order = rng.sample(things, len(things))
    below = {order[0]: TABLE}
    for lower, upper in pairwise(order):
        below[upper] = lower if rng.random() < 0.6 else TABLE
    return [f"{block} on {below[block]}" for block in things]


def _blocks(case: Case) -> Iterator[Schema]:
    """Yield the actions on blocks; where they are irreversible, what was stacked stays."""
    for block in case.things:
        table, held, clear = f"{block} on {TABLE}", f"holding {block}", f"{block} clear"
        yield Schema(f"pick up {block}", (clear, table, EMPTY), (held,), (clear, table, EMPTY))
        yield Schema(f"put down {block}", (held,), (clear, table, EMPTY), (held,))
        loose = (f"{block} loose",) if case.is_irreversible else ()
        for other in case.things:
            if other != block:
                on, below = f"{block} on {other}", f"{other} clear"
                yield Schema(
                    f"stack {block} on {other}", (held, below), (on, clear, EMPTY), (held, below, *loose)
                )
                yield Schema(
                    f"unstack {block} from {other}",
                    (on, clear, EMPTY, *loose),
                    (held, below),
                    (on, clear, EMPTY),
                )


def _places(city: str) -> tuple[str, str]:
    """Return the places of `city`, its airport first."""
    return f"{city}1", f"{city}2"


def _draw_logistics(shape: CaseShape, rng: random.Random) -> Case:
    """Return packages and vehicles at random places, and where the packages have to go."""
    cities = CITIES[: shape.cities]
    places = [place for city in cities for place in _places(city)]
    things = tuple(f"p{number}" for number in range(1, shape.packages + 1))
    at = {thing: rng.choice(places) for thing in things}
    wanted = {thing: rng.choice([place for place in places if place != at[thing]]) for thing in things}
    vehicles = {f"truck {city}": rng.choice(_places(city)) for city in cities}
    vehicles[PLANE] = _places(rng.choice(cities))[0]
    return Case(
        domain="logistics",
        things=things,
        start=tuple(f"{thing} at {place}" for thing, place in {**at, **vehicles}.items()),
        goal=tuple(f"{thing} at {place}" for thing, place in wanted.items()),
        num_cities=shape.cities,
    )


def _logistics(case: Case) -> Iterator[Schema]:
    """Yield the actions on packages: trucks drive within a city, the plane flies between airports."""
    cities = CITIES[: case.num_cities]
    routes: dict[str, tuple[str, ...]] = {f"truck {city}": _places(city) for city in cities}
    routes[PLANE] = tuple(_places(city)[0] for city in cities)
    for vehicle, places in routes.items():
        for place in places:
            here = f"{vehicle} at {place}"
            for package in case.things:
                out, inside = f"{package} at {place}", f"{package} in {vehicle}"
                yield Schema(f"load {package} into {vehicle}", (out, here), (inside,), (out,))
                yield Schema(f"unload {package} from {vehicle}", (inside, here), (out,), (inside,))
            for other in places:
                if other != place:
                    verb = "fly" if vehicle == PLANE else "drive"
                    yield from _moves(
                        f"{verb} {vehicle} to {other}", here, f"{vehicle} at {other}", case.fuel
                    )


def _moves(words: str, here: str, there: str, fuel: int) -> Iterator[Schema]:
    """Yield the move `words`, for each amount of fuel it may be made with."""
    if fuel < 0:
        yield Schema(words, (here,), (there,), (here,))
    for left in range(fuel, 0, -1):
        yield Schema(words, (here, f"fuel {left}"), (there, f"fuel {left - 1}"), (here, f"fuel {left}"))
