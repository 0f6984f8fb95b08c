"""Domains and tasks that are drawn, and tasks evolved into easier and harder ones: AgentGen (arXiv 2408.00764).

A domain is drawn from a grammar over lists of words: things are carried between places, and worked on where that can be
done. What differs is which work there is, what it needs and undoes, whether it is done in the hand or on the ground,
how much a hand holds, and which paths there are. A task is a start and two facts to bring about. Evolving changes the
goal alone, so that there is neither more nor less to choose from: an easier task leaves a fact out, a harder one asks
for one more. How much harder is measured by the shortest plan, which is exact.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Literal

from quintain.worlds.plan.strips import Atom, Domain, Predicate, Puzzle, Rule

THINGS = (
    "mug",
    "shirt",
    "lamp",
    "chair",
    "kettle",
    "basket",
    "clock",
    "drum",
    "plate",
    "boot",
    "cart",
    "bell",
)
PLACES = (
    "shed",
    "barn",
    "attic",
    "yard",
    "cellar",
    "porch",
    "hall",
    "loft",
    "dock",
    "mill",
    "stable",
    "tower",
)
WORK = (
    ("wash", "washed"), ("paint", "painted"), ("dry", "dried"), ("wrap", "wrapped"), ("heat", "heated"),
    ("polish", "polished"), ("mend", "mended"), ("label", "labeled"), ("fill", "filled"), ("seal", "sealed"),
    ("stamp", "stamped"), ("weigh", "weighed"),
)  # fmt: skip
NUM_THINGS, NUM_PLACES = 2, 3
MAX_THINGS, MAX_PLACES = 3, 4
Evolution = Literal["none", "easy", "hard", "mixed"]
"""As drawn, made easier, made harder, or one of the three by chance."""
WALK = 12
"""Random actions before a start."""
SHORTEST, LONGEST, HARDEST = 3, 14, 20
"""Steps of a shortest plan of a task as it is drawn, and the most of one that was made harder."""
X, P, Q = ("x", "thing"), ("p", "place"), ("q", "place")
YOU = Atom("you", ("p",))
FREE = Atom("free")
A, B = ("a", "block"), ("b", "block")
CLEAR, HELD, LAID, ON = (
    Atom("clear", ("a",)),
    Atom("held", ("a",)),
    Atom("laid", ("a",)),
    Atom("on", ("a", "b")),
)
BELOW = Atom("clear", ("b",))
BLOCKS = Domain(
    kinds=("block",),
    predicates=(
        Predicate("on", ("block", "block"), "{} on {}"),
        Predicate("laid", ("block",), "{} on table"),
        Predicate("clear", ("block",), "{} clear"),
        Predicate("held", ("block",), "holding {}"),
        Predicate("free", (), "hand empty"),
    ),
    rules=(
        Rule("pick up {a}", (A,), (CLEAR, LAID, FREE), (HELD,), (CLEAR, LAID, FREE)),
        Rule("put down {a}", (A,), (HELD,), (CLEAR, LAID, FREE), (HELD,)),
        Rule("stack {a} on {b}", (A, B), (HELD, BELOW), (ON, CLEAR, FREE), (HELD, BELOW)),
        Rule("unstack {a} from {b}", (A, B), (ON, CLEAR, FREE), (HELD, BELOW), (ON, CLEAR, FREE)),
    ),
)
"""Blocks as a domain like those that are drawn, so that its tasks can be evolved."""


def draw_scene(rng: random.Random, num_things: int = NUM_THINGS, num_places: int = NUM_PLACES) -> Puzzle:
    """Return a drawn domain with `num_things` in `num_places` and a start, still without a goal."""
    works = rng.sample(WORK, rng.randint(2, 3))
    is_held, has_one_hand = rng.random() < 0.5, rng.random() < 0.7
    predicates = [
        Predicate("at", ("thing", "place"), "{} at {}"),
        Predicate("you", ("place",), "you at {}"),
        Predicate("held", ("thing",), "holding {}"),
        Predicate("path", ("place", "place"), "path from {} to {}"),
    ]
    hand = (FREE,) if has_one_hand else ()
    predicates += [Predicate("free", (), "hand empty")] if has_one_hand else []
    at, held = Atom("at", ("x", "p")), Atom("held", ("x",))
    rules = [
        Rule("go to {q}", (P, Q), (YOU, Atom("path", ("p", "q"))), (Atom("you", ("q",)),), (YOU,)),
        Rule("take {x}", (X, P), (at, YOU, *hand), (held,), (at, *hand)),
        Rule("drop {x}", (X, P), (held, YOU), (at, *hand), (held,)),
    ]
    for number, (verb, state) in enumerate(works):
        done = Atom(state, ("x",))
        predicates += [
            Predicate(state, ("thing",), f"{{}} {state}"),
            Predicate(verb, ("place",), f"{verb} at {{}}"),
        ]
        needed = [Atom(rng.choice(works[:number])[1], ("x",))] if number and rng.random() < 0.5 else []
        others = [Atom(other, ("x",)) for _, other in works if other != state]
        undone = [rng.choice(others)] if rng.random() < 0.4 else []
        place = Atom(verb, ("p",))
        where = (held, YOU, place) if is_held else (at, YOU, place)
        rules.append(Rule(f"{verb} {{x}}", (X, P), (*where, *needed), (done,), tuple(undone)))
    domain = Domain(("thing", "place"), tuple(predicates), tuple(rules))
    things, places = rng.sample(THINGS, num_things), rng.sample(PLACES, num_places)
    is_row = rng.random() < 0.5
    start = [
        Atom("path", (here, there))
        for a, here in enumerate(places)
        for b, there in enumerate(places)
        if a != b and (not is_row or abs(a - b) == 1)
    ]
    start += [Atom(verb, (rng.choice(places),)) for verb, _ in works]
    start += [Atom("at", (thing, rng.choice(places))) for thing in things]
    start += [Atom("you", (rng.choice(places),)), *hand]
    everything = (*((thing, "thing") for thing in things), *((place, "place") for place in places))
    return Puzzle(domain, everything, tuple(start), ())


def draw_task(scene: Puzzle, rng: random.Random) -> Puzzle | None:
    """Return a task in `scene`: a start somewhere else and two facts to bring about; None where all is too near."""
    problem = scene.problem
    state = problem.start
    for _ in range(WALK):
        after = problem.after(state, rng.choice(problem.applicable(state)))
        assert after is not None, "an action that can be taken leads somewhere"
        state = after
    names = facts_of(scene)
    fixed = tuple(atom for atom in scene.start if atom.predicate not in scene.domain.changing)
    begun = replace(scene, start=(*fixed, *(names[fact] for fact in problem.holding(state))))
    wanted = tuple(extend_goals(begun))
    for goal in rng.sample(wanted, len(wanted)):
        tasks = [
            other for other in extend_goals(goal) if SHORTEST <= (steps_of(other, begun) or 0) <= LONGEST
        ]
        if tasks:
            return rng.choice(tasks)
    return None


def evolve_task(task: Puzzle, how: Evolution, rng: random.Random) -> Puzzle | None:
    """Return `task` made easier or harder, or as it is; None where it cannot be."""
    if how == "mixed":
        how = rng.choice(("none", "easy", "hard"))
    return task if how == "none" else easier(task, rng) if how == "easy" else harder(task, rng)


def of_blocks(things: Sequence[str], start: Sequence[str], goal: Sequence[str]) -> Puzzle:
    """Return the task of `BLOCKS` with these `things`, whose start and goal are given in words."""
    bare = Puzzle(BLOCKS, tuple((thing, "block") for thing in things), (), ())
    atoms = facts_of(bare)
    return replace(bare, start=tuple(atoms[fact] for fact in start), goal=tuple(atoms[fact] for fact in goal))


def is_wanted(atom: Atom) -> bool:
    """Whether a fact may be a goal: that a thing is put somewhere or worked on, not where oneself stands."""
    return atom.predicate not in ("you", "free", "held", "clear")


def easier(task: Puzzle, rng: random.Random) -> Puzzle | None:
    """Return `task` with a goal fact less and the shortest plan that leaves; None where that is no shorter."""
    made = [replace(task, goal=tuple(a for a in task.goal if a != left)) for left in task.goal]
    known = [(steps_of(other, task), other) for other in made if other.goal]
    return _choose_task([(-steps, other) for steps, other in known if steps and steps < length(task)], rng)


def harder(task: Puzzle, rng: random.Random) -> Puzzle | None:
    """Return `task` with a goal fact more, one with the longest of shortest plans up to `HARDEST`; None without."""
    known = [(steps_of(other, task), other) for other in extend_goals(task)]
    return _choose_task(
        [(steps, other) for steps, other in known if steps and length(task) < steps <= HARDEST], rng
    )


def _choose_task(known: Sequence[tuple[int, Puzzle]], rng: random.Random) -> Puzzle | None:
    """Return one of the tasks with the greatest number; None where there is none."""
    best = max((number for number, _ in known), default=None)
    return None if best is None else rng.choice([task for number, task in known if number == best])


def extend_goals(task: Puzzle) -> Iterator[Puzzle]:
    """Yield `task` with one goal fact more, that does not hold at its start."""
    for atom in facts_of(task).values():
        if is_wanted(atom) and atom not in task.goal and atom not in task.start:
            yield replace(task, goal=(*task.goal, atom))


def length(task: Puzzle) -> int:
    """Return the steps of a shortest plan of `task`; 0 where there is none."""
    return steps_of(task, task) or 0


def steps_of(task: Puzzle, begun: Puzzle) -> int | None:
    """Return the steps of a shortest plan of `task`, which begins as `begun` does; None without one."""
    return begun.problem.steps_to([task.domain.say(atom) for atom in task.goal])


def facts_of(scene: Puzzle) -> Mapping[str, Atom]:
    """Return words → fact, of all that actions could make true of the things of `scene`."""
    changing = [predicate for predicate in scene.domain.predicates if predicate.name in scene.domain.changing]
    atoms = (
        Atom(predicate.name, chosen)
        for predicate in changing
        for chosen in product(*([t for t, own in scene.things if own == kind] for kind in predicate.kinds))
    )
    return {scene.domain.say(atom): atom for atom in atoms}


def task_key(task: Puzzle) -> str:
    """Return what is the same for tasks that differ in names alone: of things, of work and of states.

    Words are numbered as the domain defines them; things of a kind in the order that gives the first key of all.
    """
    domain = task.domain
    names = {predicate.name: str(number) for number, predicate in enumerate(domain.predicates)}
    rules = [
        [
            (kind for _, kind in rule.parameters),
            *(sorted(_rename_atoms(part, names, {})) for part in rule[2:]),
        ]
        for rule in domain.rules
    ]
    told = repr([[list(part) for part in rule] for rule in rules])
    kinds = [[thing for thing, own in task.things if own == kind] for kind in domain.kinds]
    keys: list[str] = []
    for orders in product(*(permutations(own) for own in kinds)):
        things = {thing: f"{k}.{n}" for k, order in enumerate(orders) for n, thing in enumerate(order)}
        keys.append(repr([sorted(_rename_atoms(part, names, things)) for part in (task.start, task.goal)]))
    return f"{told} {min(keys)}"


def _rename_atoms(
    atoms: Sequence[Atom], names: Mapping[str, str], things: Mapping[str, str]
) -> list[tuple[str, ...]]:
    return [(names[atom.predicate], *(things.get(term, term) for term in atom.terms)) for atom in atoms]
