"""How questions are made harder (ASearcher) and reports graded (agent models), each beside a plain second version."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from quintain.benchmarks.formulas.episodes import episode_of, turn_of
from quintain.benchmarks.formulas.formula import Formula, Rng, flatten
from quintain.types import Action, derive_seed
from quintain.worlds.hopqa.facts import Fact

THINGS = ("Ka", "Lo", "Mi", "To", "Vis", "Ren")
RELATIONS = ("seat", "owner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Facts by numbers of things, and a way of (fact, backward) through them that begins at a thing."""

    facts: list[tuple[str, str, str]]
    way: list[tuple[int, bool]]


def graphs(rng: Rng) -> Graph:
    """Return four to twelve facts, and a way of one to three of them, each from where the one before it ends."""
    while True:
        drawn = [
            (str(rng.choice(THINGS)), str(rng.choice(RELATIONS)), str(rng.choice(THINGS)))
            for _ in range(int(rng.integers(4, 13)))
        ]
        facts = [fact for fact in dict.fromkeys(drawn) if fact[0] != fact[2]]
        if not facts:
            continue
        way = [(int(rng.integers(len(facts))), bool(rng.random() < 0.5))]
        for _ in range(int(rng.integers(0, 3))):
            number, backward = way[-1]
            here = facts[number][0 if backward else 2]
            after = [
                (k, b) for k, fact in enumerate(facts) for b in (False, True) if fact[2 if b else 0] == here
            ]
            if after:
                way.append(after[int(rng.integers(len(after)))])
        return Graph(facts=facts, way=way)


CHECKS = ("", "valid", "findable", "unique", "harder")


def checked(module: ModuleType, case: Graph) -> list[float]:
    """Return which check the way fails, how many things answer it, and how often it is answered without search."""
    facts = [Fact(*fact) for fact in case.facts]
    way = [module.Hop(facts[number], number, is_backward=backward) for number, backward in case.way]
    before = module.closed_book(way[1:]) if way[1:] else 1.0
    found = module.problem(way, facts, before)
    return [CHECKS.index(found), len(module.answers(way, facts)), 8 * module.closed_book(way)]


def checked_plainly(case: Graph) -> list[float]:
    """Return the same by walking sets of things, and by asking each reader for each fact."""
    things, sets = list[str](), list[set[str]]()
    for place, (number, backward) in enumerate(case.way):
        subject, relation, answer = case.facts[number]
        source, end = (answer, subject) if backward else (subject, answer)
        if not place:
            things, sets = [source], [{source}]
        things.append(end)
        reached: set[str] = set()
        for s, r, a in case.facts:
            if r == relation:
                reached |= (
                    {s} if backward and a in sets[-1] else {a} if not backward and s in sets[-1] else set()
                )
        sets.append(reached)

    def readers(way: list[tuple[int, bool]]) -> int:
        known = 0
        for reader in range(8):
            odds = [derive_seed("known", reader, *case.facts[n]) % 1000 for n, _ in way]
            known += not any(odd >= 700 for odd in odds)
        return known

    relations = [(case.facts[n][1], things[k], b) for k, (n, b) in enumerate(case.way)]
    told = {(s, r) for s, r, _ in case.facts}
    if sorted(set(things)) != sorted(things):
        found = "valid"
    elif any(b and (thing, relation) in told for relation, thing, b in relations):
        found = "findable"
    elif any(reached != {thing} for reached, thing in zip(sets, things, strict=True)):
        found = "unique"
    elif readers(case.way) >= (readers(case.way[1:]) if case.way[1:] else 8):
        found = "harder"
    else:
        found = ""
    return [CHECKS.index(found), len(sets[-1]), readers(case.way)]


Played = list[list[tuple[float, bool]]]


def episodes(rng: Rng) -> Played:
    """Return one to four episodes of one to five turns: what each was paid, and whether it could be read."""
    return [
        [(float(rng.normal()), bool(rng.random() < 0.6)) for _ in range(int(rng.integers(1, 6)))]
        for _ in range(int(rng.integers(1, 5)))
    ]


def paid(module: ModuleType, case: Played) -> list[float]:
    """Return what the code pays each turn."""

    def said(is_readable: bool) -> Action:
        return Action(text="a valid question", error=None if is_readable else "no call")

    told = [
        episode_of(turn_of(action=said(is_readable), reward=reward) for reward, is_readable in turns)
        for turns in case
    ]
    return flatten([list(module.readable_reward().measure(t)) for t in told])


def paid_plainly(case: Played) -> list[float]:
    """Return every turn's pay, or nothing for the whole episode whose end nobody could read."""
    return [reward if turns[-1][1] else 0.0 for turns in case for reward, _ in turns]


LOOKS = ("reading", "browsing", "needless_reading", "needless_browsing", "answer")
Looked = list[tuple[list[int], bool]]
"""of each episode the numbers of `LOOKS`, turn by turn, and whether the task was solved"""


def lookers(rng: Rng) -> Looked:
    """Return one to twelve episodes of one to four turns."""
    return [
        ([int(k) for k in rng.integers(0, 5, int(rng.integers(1, 5)))], bool(rng.random() < 0.6))
        for _ in range(int(rng.integers(1, 13)))
    ]


def bounded(module: ModuleType, case: Looked) -> list[float]:
    """Return the numbers of the code, and what each turn is paid."""
    told = [
        episode_of((turn_of(reward_terms={LOOKS[k]: 0.0}) for k in turns), is_success=won)
        for turns, won in case
    ]
    paid = [list(module.looking(1.0).measure(t)) for t in told]
    return flatten([list(module.boundary(told).values()), paid])


def bounded_plainly(case: Looked) -> list[float]:
    """Return the same, episode by episode."""
    closed = looked = opened = missed = won_open = looks_open = total = 0
    for turns, won in case:
        needed, more = len([k for k in turns if k < 2]), len([k for k in turns if k in (2, 3)])
        total += needed + more
        if needed == 0 and (more != 0 or won):
            closed, looked = closed + 1, looked + (more != 0)
        else:
            opened, missed, won_open = opened + 1, missed + (needed == 0), won_open + won
            looks_open += needed + more
    rates = [
        looked / closed if closed else 0.0,
        missed / opened if opened else 0.0,
        total / len(case),
        won_open / looks_open if looks_open else float(won_open),
    ]
    return flatten([rates, [[-1.0 if k < 4 else 0.0 for k in turns] for turns, _ in case]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Claims as (thing, value, page) by numbers: page -1 is ``known``, 9 is a page of nothing."""

    claims: list[tuple[int, int, int]]
    asked: list[int]
    opened: list[int]
    known: list[int]


def reports(rng: Rng) -> Report:
    """Return up to six claims about four things, of which one to three are asked for; the value of thing k is k."""
    asked = [int(k) for k in rng.permutation(4)[: int(rng.integers(1, 4))]]
    claims: list[tuple[int, int, int]] = []
    for _ in range(int(rng.integers(0, 7))):
        thing = int(rng.integers(4))
        page = (thing, -1, 9, int(rng.integers(4)))[int(rng.choice(4, p=[0.5, 0.2, 0.1, 0.2]))]
        claims.append((thing, thing if rng.random() < 0.7 else 7, page))
    opened, known = ([int(k) for k in rng.permutation(4)[: int(rng.integers(0, 4))]] for _ in range(2))
    return Report(claims=claims, asked=asked, opened=opened, known=[k for k in known if k in asked])


def graded(module: ModuleType, case: Report) -> list[float]:
    """Return coverage, support and worth by the code, of the report as it is written."""

    def page(number: int) -> str:
        return module.KNOWN if number < 0 else "home" if number > 3 else f"lamp {'abcd'[number]}"

    def about(number: int) -> Any:
        return module.Asked("price", page(number))

    text = "; ".join(module.Claim(about(t), value, page(p)).words() for t, value, p in case.claims)
    found = module.grade(
        module.read_claims(text),
        [about(k) for k in case.asked],
        {about(k): k for k in range(4)},
        opened={page(k) for k in case.opened},
        known={about(k) for k in case.known},
    )
    return [found.coverage, found.support, found.value]


def graded_plainly(case: Report) -> list[float]:
    """Return the same, claim by claim."""
    made = sorted(set(case.claims))
    good = {thing for thing, value, _ in made if thing in case.asked and value == thing}
    backed = 0
    for thing, value, page in made:
        is_right = thing in case.asked and value == thing
        backed += is_right and (
            (page == thing and page in case.opened) or (page == -1 and thing in case.known)
        )
    coverage, support = len(good) / len(case.asked), backed / len(made) if made else 0.0
    return [coverage, support, (coverage + support) / 2]


FORMULAS: tuple[Formula, ...] = (
    Formula("toolrl.boundary", "methods.toolrl.deep_research", ("boundary", "looks", "looking"), lookers,
        bounded, bounded_plainly),
    Formula("toolrl.graded", "worlds.web.research", ("grade", "value", "Grade"), reports, graded,
        graded_plainly),
    Formula("toolrl.evolved", "worlds.hopqa.synthesis", ("problem", "answers", "step", "closed_book", "Hop"),
        graphs, checked, checked_plainly, aside=("words",)),
    Formula("toolrl.readable", "methods.toolrl.asearcher", ("readable_reward",), episodes, paid, paid_plainly),
)  # fmt: skip
