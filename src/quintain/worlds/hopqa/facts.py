"""The facts behind `hopqa`: people, companies, cities and countries, and questions that chain their relations.

Each relation of a thing has one answer in a corpus, so that every question has one.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

NAMES: dict[str, tuple[str, ...]] = {
    "person": ("Anna", "Ben", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jane", "Karl", "Lena"),
    "company": ("Orbit", "Delta", "Apex", "Nova", "Pixel", "Comet", "Vertex", "Prism", "Atlas", "Lotus"),
    "city": ("Rome", "Oslo", "Lima", "Cairo", "Paris", "Kyoto", "Quito", "Delhi", "Turin", "Porto"),
    "country": ("Chile", "Kenya", "Nepal", "Spain", "India", "Egypt", "Japan", "Ghana"),
}
RELATIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "person": (("birthplace", "city"), ("employer", "company"), ("friend", "person")),
    "company": (("founder", "person"), ("seat", "city"), ("owner", "company")),
    "city": (("mayor", "person"), ("country", "country"), ("twin", "city")),
    "country": (("capital", "city"), ("president", "person"), ("neighbor", "country")),
}
"""kind of thing → its relations, each with the kind of what it leads to"""
SYLLABLES = ("ka", "lo", "mi", "ren", "to", "vis", "du", "pel", "sa", "nor", "be", "gu")
SENTENCE = re.compile(r"The (\w+) of (\w+(?: \w+)?) is (\w+(?: \w+)?)\.")
"""A fact as `Fact.words` says it."""
SECOND = ("Gray", "Hill", "West", "Stone", "North", "Wood")
"""The second words of full names."""
MAX_HOPS = 4
MAX_ROUNDS = 3
MAX_DISTRACTORS = 80


class Fact(NamedTuple):
    """A fact: ``Fact("Orbit", "seat", "Rome")``."""

    subject: str
    relation: str
    answer: str

    def words(self) -> str:
        """Return the fact as a sentence."""
        return f"The {self.relation} of {self.subject} is {self.answer}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A task: the facts that lead to the answer, the paragraphs that tell them and others, what is told at once."""

    chain: tuple[Fact, ...]
    paragraphs: tuple[str, ...]
    titles: tuple[str, ...]
    """what each paragraph is about"""
    sources: tuple[int, ...]
    """for each fact of the chain, the paragraph that tells it"""
    is_closed: bool
    """Whether the facts of the chain, and others, are told with the question."""
    told: tuple[int, ...]
    """The paragraphs that are told with the question."""
    answer: str = field(default="", repr=False)
    """What is right where it is not the answer of the last fact: nobody knows that one."""
    asked: str = field(default="", repr=False)
    """How it is asked where it is not about relations."""

    @property
    def gold(self) -> str:
        """The right answer."""
        return self.answer or self.chain[-1].answer

    def words(self) -> str:
        """Return the question: ``What is the mayor of the seat of Orbit?``"""
        if self.asked:
            return self.asked
        relations = " of the ".join(fact.relation for fact in reversed(self.chain))
        return f"What is the {relations} of {self.chain[0].subject}?"


class QuestionShape(NamedTuple):
    """The options that a question is drawn by."""

    hops: int
    least_hops: int
    distractors: int
    closed: float
    """Probability that what is needed is told with the question."""
    is_article: bool
    """Whether a paragraph tells all facts of a thing, not one."""
    has_made_names: bool
    decoys: bool = False
    """Whether an open question is told with as many paragraphs as a closed one, of which none is needed."""
    has_full_names: bool = False
    """Whether known names have a second word."""


def draw_question(shape: QuestionShape, rng: random.Random) -> Question:
    """Return a question of `shape`; half of the distractors share a thing or a relation with its facts."""
    names = _names(shape, rng)
    facts = relate(names, rng)
    chain = draw_chain(rng.randint(shape.least_hops, shape.hops), facts, rng, by_thing(facts))
    others = [fact for fact in facts if fact not in chain]
    near = [fact for fact in others if _is_near(fact, chain)]
    chosen = rng.sample(near, min(shape.distractors // 2, len(near)))
    rest = [fact for fact in others if fact not in chosen]
    chosen += rng.sample(rest, shape.distractors - len(chosen))
    shown = rng.sample([*chain, *chosen], len(chain) + len(chosen))
    paragraphs, titles, source = write_paragraphs(shown, shape.is_article)
    is_closed = rng.random() < shape.closed
    needed = tuple(source[fact] for fact in chain)
    extra = [number for number in range(len(paragraphs)) if number not in needed]
    told = sorted({*needed, *rng.sample(extra, min(2, len(extra)))}) if is_closed else []
    if shape.decoys and not is_closed:
        told = sorted(rng.sample(extra, min(len(set(needed)) + 2, len(extra))))
    return Question(
        chain=chain,
        paragraphs=paragraphs,
        titles=titles,
        sources=needed,
        is_closed=is_closed,
        told=tuple(told),
    )


def relate(names: Mapping[str, Sequence[str]], rng: random.Random) -> list[Fact]:
    """Return a fact for each relation of each of `names`, given by kind of thing."""
    facts: list[Fact] = []
    for own, relations in RELATIONS.items():
        for place, subject in enumerate(names[own]):
            for relation, kind in relations:
                others = range(len(names[kind]) - (kind == own))
                drawn = rng.choice(others)
                facts.append(Fact(subject, relation, names[kind][drawn + (kind == own and drawn >= place)]))
    return facts


def read_facts(paragraphs: Sequence[str]) -> Iterator[tuple[Fact, int]]:
    """Yield the facts that `paragraphs` tell, each with the number of its paragraph."""
    for number, text in enumerate(paragraphs):
        for relation, subject, answer in SENTENCE.findall(text):
            yield Fact(subject, relation, answer), number


def harder(question: Question, rounds: int, rng: random.Random) -> Question:
    """Return `question` after up to `rounds` rounds in which its thing becomes a description; its answer stays.

    A description is a fact of the corpus whose answer the thing is: with "The founder of Orbit is Ben.", a question
    about Ben asks for the founder of Orbit (E2HQA of WebDancer, arXiv 2505.22648). No thing comes twice, so that each
    round takes one search more. A thing that nothing describes keeps its name.
    """
    for _ in range(rounds):
        things = {question.chain[0].subject, *(fact.answer for fact in question.chain)}
        found = [
            (fact, place)
            for fact, place in read_facts(question.paragraphs)
            if fact.answer == question.chain[0].subject
            and fact.subject not in things
            and (question.is_closed or place not in question.told)
        ]
        if not found:
            break
        fact, place = rng.choice(found)
        question = replace(
            question,
            chain=(fact, *question.chain),
            sources=(place, *question.sources),
            told=tuple(sorted({*question.told, place})) if question.is_closed else question.told,
        )
    return question


def _names(shape: QuestionShape, rng: random.Random) -> dict[str, Sequence[str]]:
    """Return the names of things by kind: known ones, made of syllables, or known ones with a second word."""
    if shape.has_full_names:
        return {kind: [f"{name} {rng.choice(SECOND)}" for name in known] for kind, known in NAMES.items()}
    if not shape.has_made_names:
        return dict(NAMES)
    made: list[str] = []
    total = sum(len(known) for known in NAMES.values())
    while len(made) < total:
        name = "".join(rng.choice(SYLLABLES) for _ in range(3)).capitalize()
        if name not in made:
            made.append(name)
    return {kind: [made.pop() for _ in known] for kind, known in NAMES.items()}


def by_thing(facts: Sequence[Fact]) -> dict[str, list[Fact]]:
    """Return `facts` by what they are about."""
    found: dict[str, list[Fact]] = {}
    for fact in facts:
        found.setdefault(fact.subject, []).append(fact)
    return found


def draw_chain(
    hops: int, facts: Sequence[Fact], rng: random.Random, by_subject: Mapping[str, Sequence[Fact]]
) -> tuple[Fact, ...]:
    """Return `hops` facts, each about the answer of the one before; no thing occurs twice."""
    while True:
        chain = [rng.choice(facts)]
        while len(chain) < hops:
            chain.append(rng.choice(by_subject[chain[-1].answer]))
        if len({chain[0].subject, *(fact.answer for fact in chain)}) == hops + 1:
            return tuple(chain)


def _is_near(fact: Fact, chain: Sequence[Fact]) -> bool:
    """Whether `fact` shares its thing or its relation with one of `chain`."""
    return any(fact.subject == link.subject or fact.relation == link.relation for link in chain)


def write_paragraphs(
    facts: Sequence[Fact], is_article: bool
) -> tuple[tuple[str, ...], tuple[str, ...], dict[Fact, int]]:
    """Return paragraphs that tell `facts`, their titles, and which paragraph tells which fact."""
    if not is_article:
        source = {fact: number for number, fact in enumerate(facts)}
        return tuple(fact.words() for fact in facts), tuple(fact.subject for fact in facts), source
    told: dict[str, list[str]] = {}
    for fact in facts:
        told.setdefault(fact.subject, []).append(fact.words())
    places = {title: number for number, title in enumerate(told)}
    return tuple(map(" ".join, told.values())), tuple(told), {fact: places[fact.subject] for fact in facts}
