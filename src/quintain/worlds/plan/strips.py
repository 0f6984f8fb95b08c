"""STRIPS domains as data: kinds of things, predicates, actions; what is wrong with one; and its grounding.

A `Domain` says what can be done, a `Puzzle` with which things, from where and to what end. Both come from a file or are
drawn (`drawn`), and `faults` says of either why it would be no task. Facts are said in words, by a template of each
predicate: ``Predicate("at", ("thing", "place"), "{} at {}")``. What no action changes, such as paths, is left out of
states once it has decided which actions there are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import UsageError
from quintain.types.json_text import load_json
from quintain.worlds.plan.problem import Problem, Schema

MAX_THINGS = 12


class Atom(NamedTuple):
    """A predicate over parameters or things: ``Atom("at", ("mug", "shed"))``."""

    predicate: str
    terms: tuple[str, ...] = ()


class Predicate(NamedTuple):
    """What can be said of things of some kinds, with a pair of braces for each."""

    name: str
    kinds: tuple[str, ...]
    words: str


class Rule(NamedTuple):
    """An action with parameters: ``Rule("take {x}", (("x", "thing"), ("p", "place")), needs=…, adds=…, deletes=…)``."""

    words: str
    parameters: tuple[tuple[str, str], ...]
    """names with their kinds"""
    needs: tuple[Atom, ...]
    adds: tuple[Atom, ...]
    deletes: tuple[Atom, ...] = ()


@dataclass(frozen=True)
class Domain:
    """What can be done: ``Domain(kinds=("thing",), predicates=(…,), rules=(…,))``."""

    kinds: tuple[str, ...]
    predicates: tuple[Predicate, ...]
    rules: tuple[Rule, ...]

    @property
    def changing(self) -> frozenset[str]:
        """The predicates that actions change."""
        return frozenset(atom.predicate for rule in self.rules for atom in (*rule.adds, *rule.deletes))

    def say(self, atom: Atom, names: Mapping[str, str] | None = None) -> str:
        """Return `atom` in words, its terms by `names` where these are given."""
        words = next(predicate.words for predicate in self.predicates if predicate.name == atom.predicate)
        return words.format(*((names or {}).get(term, term) for term in atom.terms))

    def told(self) -> str:
        """Return what the actions need and do, in a sentence each: ``take X: needs X at P, gives holding X.``"""
        lines: list[str] = []
        for rule in self.rules:
            names = {name: name.upper() for name, _ in rule.parameters}
            parts = {"needs": rule.needs, "gives": rule.adds, "ends": rule.deletes}
            said = [
                f"{verb} {', '.join(self.say(a, names) for a in atoms)}"
                for verb, atoms in parts.items()
                if atoms
            ]
            lines.append(f"{rule.words.format(**names)}: {'; '.join(said)}.")
        return " ".join(lines)


@dataclass(frozen=True)
class Puzzle:
    """A task in a domain: ``Puzzle(domain=…, things=(("mug", "thing"),), start=(…,), goal=(…,))``."""

    domain: Domain
    things: tuple[tuple[str, str], ...]
    """names with their kinds"""
    start: tuple[Atom, ...]
    goal: tuple[Atom, ...]

    @cached_property
    def problem(self) -> Problem:
        """The grounded problem, which remembers the distances that it measured."""
        changing = self.domain.changing
        start = [self.domain.say(atom) for atom in self.start if atom.predicate in changing]
        return Problem(self._schemas(), start, [self.domain.say(atom) for atom in self.goal])

    @property
    def fixed(self) -> tuple[str, ...]:
        """What holds for good, in words."""
        return tuple(self.domain.say(a) for a in self.start if a.predicate not in self.domain.changing)

    def _schemas(self) -> Iterator[Schema]:
        """Yield the actions on the things that there are, each with different things, where what is fixed allows it."""
        changing, known = self.domain.changing, set(self.start)
        for rule in self.domain.rules:
            names = [name for name, _ in rule.parameters]
            pools = [[thing for thing, own in self.things if own == kind] for _, kind in rule.parameters]
            for chosen in product(*pools):
                if len(set(chosen)) < len(chosen):
                    continue
                bound = dict(zip(names, chosen, strict=True))
                needs = [Atom(a.predicate, tuple(bound.get(t, t) for t in a.terms)) for a in rule.needs]
                if not all(atom in known for atom in needs if atom.predicate not in changing):
                    continue
                yield Schema(
                    rule.words.format(**bound),
                    tuple(self.domain.say(atom) for atom in needs if atom.predicate in changing),
                    tuple(self.domain.say(atom, bound) for atom in rule.adds),
                    tuple(self.domain.say(atom, bound) for atom in rule.deletes),
                )


def faults(puzzle: Puzzle) -> list[str]:
    """Return why `puzzle` is no task, a line each; empty where it is one that can be solved.

    Whether there is a plan is asked last, of what is right otherwise.
    """
    domain, things = puzzle.domain, dict(puzzle.things)
    found: list[str] = []
    for what, names in (
        ("predicate", [p.name for p in domain.predicates]),
        ("action", [rule.words for rule in domain.rules]),
        ("thing", [name for name, _ in puzzle.things]),
    ):
        found += [
            f"{what} {name!r} is defined twice" for name in dict.fromkeys(names) if names.count(name) > 1
        ]
    for predicate in domain.predicates:
        found += [
            f"predicate {predicate.name!r} is of the kind {kind!r}, which is not defined"
            for kind in predicate.kinds
            if kind not in domain.kinds
        ]
        if predicate.words.count("{}") != len(predicate.kinds):
            found.append(f"predicate {predicate.name!r} has other places in its words than kinds")
    for rule in domain.rules:
        found += _faults_of_rule(domain, rule)
    found += [
        f"thing {name!r} is of the kind {k!r}, which is not defined"
        for name, k in puzzle.things
        if k not in domain.kinds
    ]
    for where, atoms in (("start", puzzle.start), ("goal", puzzle.goal)):
        for atom in atoms:
            found += [f"{where}: {fault}" for fault in _misfits(domain, atom, things)]
    if not puzzle.goal:
        found.append("the goal is empty")
    elif set(puzzle.goal) <= set(puzzle.start):
        found.append("the goal holds at the start")
    if len(things) > MAX_THINGS:
        found.append(f"there are {len(things)} things, more than {MAX_THINGS}")
    if not found and puzzle.problem.distance(puzzle.problem.start) is None:
        found.append("no plan reaches the goal")
    return found


def _faults_of_rule(domain: Domain, rule: Rule) -> Iterator[str]:
    """Yield what is wrong with an action."""
    kinds, who = dict(rule.parameters), f"action {rule.words!r}"
    atoms = (*rule.needs, *rule.adds, *rule.deletes)
    used = {term for atom in atoms for term in atom.terms}
    yield from (f"{who} does not use its parameter {name!r}" for name in kinds if name not in used)
    yield from (
        f"{who} has a parameter of the kind {k!r}, which is not defined"
        for k in kinds.values()
        if k not in domain.kinds
    )
    yield from (f"{who}: {fault}" for atom in atoms for fault in _misfits(domain, atom, kinds))
    if not rule.adds and not rule.deletes:
        yield f"{who} changes nothing"
    if both := set(rule.adds) & set(rule.deletes):
        yield f"{who} gives and ends {domain.say(next(iter(both)))!r}"
    try:
        rule.words.format(**kinds)
    except (LookupError, ValueError):
        yield f"{who} names what is none of its parameters"


def _misfits(domain: Domain, atom: Atom, kinds: Mapping[str, str]) -> Iterator[str]:
    """Yield how `atom` does not fit its predicate; `kinds` are those of the names that it may use."""
    predicate = next((p for p in domain.predicates if p.name == atom.predicate), None)
    if predicate is None:
        yield f"predicate {atom.predicate!r} is not defined"
        return
    if len(atom.terms) != len(predicate.kinds):
        yield f"{atom.predicate!r} takes {len(predicate.kinds)} terms, not {len(atom.terms)}"
        return
    for term, kind in zip(atom.terms, predicate.kinds, strict=True):
        if term not in kinds:
            yield f"{term!r} is not defined"
        elif kinds[term] != kind:
            yield f"{term!r} is a {kinds[term]}, where {atom.predicate!r} takes a {kind}"


def read_puzzle(file: Path) -> Puzzle:
    """Return the domain, the things and the start that the JSON `file` describes; see `docs/worlds/plan.md`.

    Raises:
        UsageError: it cannot be read, or has a fault; the goal, which is drawn, is not asked for.
    """
    try:
        value: Mapping[str, Any] = load_json(file.read_text(encoding="utf-8"))
        domain = Domain(
            kinds=tuple(dict.fromkeys(value["things"].values())),
            predicates=tuple(Predicate(n, tuple(p["kinds"]), p["words"]) for n, p in value["predicates"].items()),
            rules=tuple(
                Rule(words, tuple(rule.get("parameters", {}).items()),
                     *(tuple(map(_atom, rule.get(part, []))) for part in ("needs", "adds", "deletes")))
                for words, rule in value["actions"].items()
            ),
        )  # fmt: skip
        puzzle = Puzzle(domain, tuple(value["things"].items()), tuple(map(_atom, value["start"])), ())
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"plan: got the domain {file}, which is none ({type(error).__name__}: {error}); see docs/worlds/plan.md"
        ) from error
    if found := [fault for fault in faults(puzzle) if fault != "the goal is empty"]:
        raise UsageError(f"plan: got the domain {file}, in which {found[0]}; correct it")
    assert puzzle.problem.depths, "it has a start, and is refused where it has too many states"
    return puzzle


def _atom(parts: list[str]) -> Atom:
    return Atom(parts[0], tuple(parts[1:]))
