"""Harder questions out of a question, by injection and by fuzzing, each checked (ASearcher, arXiv 2508.07976, 4.2).

A question is a way through facts: a step forward asks for ``the seat of X``, a step backward for ``the company whose
seat is X``. Injection puts a fact before the thing that the way begins with: Ben becomes the founder of Orbit. Fuzzing
takes its name away and leaves a detail that it alone has: Orbit becomes the company whose owner is Delta. After each
round it is checked that the question leads to its answer and names neither it nor a thing twice; that nothing else
answers it, by asking the graph of all facts; and that who has no search answers it less often than before. A round that
fails a check is drawn again, and after some tries left out.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from quintain.types import derive_seed
from quintain.worlds.hopqa.facts import RELATIONS, Fact, Question, read_facts

GENERATIONS = 8
"""Times that a question is answered without search."""
REMEMBERED = 0.7
"""Share of all facts that somebody who answers without search happens to know."""
TRIES = 4
"""Draws of a round that fails its checks."""
KIND_OF = {relation: kind for kind, relations in RELATIONS.items() for relation, _ in relations}
Round = Literal["inject", "fuzz"]


class Hop(NamedTuple):
    """A step of a way: ``Hop(Fact("Orbit", "owner", "Delta"), 3, is_backward=True)`` leads from Delta to Orbit."""

    fact: Fact
    source: int
    """the paragraph that tells the fact"""
    is_backward: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        """The thing that it leads from, and the one that it leads to."""
        subject, _, answer = self.fact
        return (answer, subject) if self.is_backward else (subject, answer)

    def words(self, thing: str) -> str:
        """Return what it leads to, in words: ``the seat of Orbit``, ``the company whose seat is Rome``."""
        relation = self.fact.relation
        return (
            f"the {KIND_OF[relation]} whose {relation} is {thing}"
            if self.is_backward
            else f"the {relation} of {thing}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HarderQuestion:
    """A question that was made harder: ``HarderQuestion(question=…, rounds=("inject", "fuzz"), …)``."""

    question: Question
    rounds: tuple[Round, ...]
    rejected: dict[str, int]
    """check → rounds that it threw away"""
    closed_book: tuple[float, ...]
    """share of `GENERATIONS` answers without search that are right: before the first round, and after each"""


def evolve(question: Question, rounds: int, rng: random.Random) -> HarderQuestion:
    """Return `question` after up to `rounds` rounds of injection or fuzzing, whichever is drawn.

    It ends before where nobody answers it without search any more (a difficulty that more rounds would not show), or
    where no round passes the checks.
    """
    told = list(read_facts(question.paragraphs))
    facts = [fact for fact, place in told if question.is_closed or place not in question.told]
    place_of = dict(told)
    way = tuple(Hop(fact, source) for fact, source in zip(question.chain, question.sources, strict=True))
    done, rejected = list[Round](), dict[str, int]()
    shares = [measure_closed_book(way)]
    while len(done) < rounds and shares[-1]:
        for _ in range(TRIES):
            kind: Round = rng.choice(("inject", "fuzz"))
            longer = extend_way(way, kind, facts, place_of, rng)
            failed = (
                "nothing fits" if longer is None else problem(longer, [fact for fact, _ in told], shares[-1])
            )
            if longer is not None and not failed:
                way = longer
                done.append(kind)
                shares.append(measure_closed_book(way))
                break
            rejected[failed] = rejected.get(failed, 0) + 1
        else:
            break
    return HarderQuestion(
        question=word_question(question, way) if done else question,
        rounds=tuple(done), rejected=rejected, closed_book=tuple(shares),
    )  # fmt: skip


def extend_way(
    way: Sequence[Hop], kind: Round, facts: Sequence[Fact], place_of: dict[Fact, int], rng: random.Random
) -> tuple[Hop, ...] | None:
    """Return `way` with one more hop before its first thing; None where no fact leads to that."""
    first = way[0].ends[0]
    if kind == "inject":
        found = [Hop(fact, place_of[fact]) for fact in facts if fact.answer == first]
    else:
        found = [Hop(fact, place_of[fact], is_backward=True) for fact in facts if fact.subject == first]
    return (rng.choice(found), *way) if found else None


def problem(way: Sequence[Hop], facts: Sequence[Fact], before: float) -> str:
    """Return which check `way` fails: ``valid``, ``findable``, ``unique`` or ``harder``; empty for none.

    Where the owner of Delta is told as well, who looks for what Delta owns finds that first. `before` is how often the
    question was answered without search before the round.
    """
    things = [way[0].ends[0], *(hop.ends[1] for hop in way)]
    if len(set(things)) < len(things) or things[-1] in phrase(way):
        return "valid"
    if any(hop.is_backward and step({hop.ends[0]}, hop._replace(is_backward=False), facts) for hop in way):
        return "findable"
    reached = {things[0]}
    for hop, thing in zip(way, things[1:], strict=True):
        reached = step(reached, hop, facts)
        if reached != {thing}:
            return "unique"
    return "harder" if measure_closed_book(way) >= before else ""


def step(things: Iterable[str], hop: Hop, facts: Iterable[Fact]) -> set[str]:
    """Return all that the relation of `hop` leads to from any of `things`, in the graph of `facts`."""
    known = set(things)
    if hop.is_backward:
        return {fact.subject for fact in facts if fact.relation == hop.fact.relation and fact.answer in known}
    return {fact.answer for fact in facts if fact.relation == hop.fact.relation and fact.subject in known}


def answers(way: Sequence[Hop], facts: Sequence[Fact]) -> set[str]:
    """Return everything that answers the question of `way`, by asking the graph of `facts`."""
    reached = {way[0].ends[0]}
    for hop in way:
        reached = step(reached, hop, facts)
    return reached


def measure_closed_book(way: Sequence[Hop]) -> float:
    """Return the share of `GENERATIONS` readers without search who happen to know every fact of `way`."""
    known = [
        all(derive_seed("known", reader, *hop.fact) % 1000 < 1000 * REMEMBERED for hop in way)
        for reader in range(GENERATIONS)
    ]
    return sum(known) / GENERATIONS


def phrase(way: Sequence[Hop]) -> str:
    """Return the last thing of `way` in words."""
    words = way[0].ends[0]
    for hop in way:
        words = hop.words(words)
    return words


def word_question(question: Question, way: Sequence[Hop]) -> Question:
    """Return `question` as `way` asks it; a fact that is read backward stands in its chain the other way round."""
    needed = {hop.source for hop in way}
    return replace(
        question,
        chain=tuple(Fact(hop.ends[0], hop.fact.relation, hop.ends[1]) for hop in way),
        sources=tuple(hop.source for hop in way),
        told=tuple(sorted({*question.told, *needed})) if question.is_closed else question.told,
        asked=f"What is {phrase(way)}?",
    )
