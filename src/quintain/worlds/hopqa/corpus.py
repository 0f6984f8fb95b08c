"""Corpora that all questions of `hopqa` share: facts by the ten thousand, or texts that nobody here wrote.

Of the facts some are missing from the corpus, so that nobody can know them, and some have changed: the corpus says what
was beside what is. Questions about texts quote a sentence and ask which text says it.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from quintain.errors import DataError
from quintain.retrieval.passages import Passage, read_passages
from quintain.retrieval.retriever import Indexed
from quintain.types import derive_seed
from quintain.worlds.hopqa.facts import (
    NAMES,
    RELATIONS,
    SYLLABLES,
    Fact,
    Question,
    QuestionShape,
    by_thing,
    draw_chain,
    relate,
    write_paragraphs,
)

UNKNOWN = "unknown"
"""The answer to a question that takes a fact which the corpus does not hold."""
FEWEST, MOST = 120, 2_000_000
"""Facts that a corpus can have."""
RELATIONS_OF_A_THING = 3
LEADS_TO = {relation: kind for relations in RELATIONS.values() for relation, kind in relations}
EXTRA = 2
"""Paragraphs told with a closed question that it does not need."""
SENTENCE_WORDS = range(6, 31)
"""Words of a sentence that can be asked about."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
FEWEST_SENTENCES = 16
"""Sentences that can be asked about, so that there are some for training and others for evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """A corpus of facts: ``draw_facts(50_000, 0.0, 0.0, False)``."""

    facts: tuple[Fact, ...]
    """all of them, those that are missing from the passages too"""
    by_subject: Mapping[str, Sequence[Fact]]
    sources: Mapping[Fact, int]
    """the passage that tells a fact, for those that one tells"""
    passages: tuple[Passage, ...]

    def question(self, shape: QuestionShape, rng: random.Random) -> Question:
        """Draw a question of `shape`, of which hops and closedness count; a missing fact leaves nothing to know."""
        hops = rng.randint(shape.least_hops, shape.hops)
        chain = draw_chain(hops, self.facts, rng, self.by_subject)
        known = [self.sources[fact] for fact in chain if fact in self.sources]
        is_closed = rng.random() < shape.closed
        told: list[int] = []
        if is_closed or shape.decoys:
            others = [
                number
                for number in rng.sample(range(len(self.passages)), hops + EXTRA)
                if number not in known
            ]
            told = sorted({*known, *others[:EXTRA]}) if is_closed else sorted(others)
        return Question(
            chain=chain,
            paragraphs=(),
            titles=(),
            sources=tuple(self.sources.get(fact, -1) for fact in chain),
            is_closed=is_closed,
            told=tuple(told),
            answer="" if len(known) == hops else UNKNOWN,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Texts:
    """A corpus of real texts, of which each has a title: ``read_texts("packages.txt")``."""

    passages: tuple[Passage, ...]
    sentences: tuple[tuple[int, str], ...]
    """passage and words of those that can be asked about"""

    def question(self, shape: QuestionShape, rng: random.Random) -> Question:
        """Draw a sentence; the title of what says it is the answer, and does not stand in the question."""
        number, said = rng.choice(self.sentences)
        is_closed = rng.random() < shape.closed
        return Question(
            chain=(Fact(said, "text", self.passages[number].title),),
            paragraphs=(),
            titles=(),
            sources=(number,),
            is_closed=is_closed,
            told=(number,) if is_closed else (),
            asked=f"What is the title of the text that says: {said}",
        )


def _can_be_asked(said: str, title: str) -> bool:
    return bool(title) and len(said.split()) in SENTENCE_WORDS and title.casefold() not in said.casefold()


@lru_cache(maxsize=4)
def draw_facts(count: int, missing: float, changed: float, is_article: bool) -> Facts:
    """Return a corpus of `count` facts or up to two more; the shares `missing` of them left out, `changed` told twice.

    It is the same one for the same numbers, everywhere. A paragraph tells a fact, or as an article all of a thing.
    """
    rng = random.Random(derive_seed("hopqa corpus", count))
    num_things = -(-count // RELATIONS_OF_A_THING)
    length = 3
    while len(SYLLABLES) ** length < 2 * num_things:
        length += 1
    numbers = rng.sample(range(len(SYLLABLES) ** length), num_things)
    things = ["".join(_spell(number, length)).capitalize() for number in numbers]
    shares = {kind: len(known) / sum(map(len, NAMES.values())) for kind, known in NAMES.items()}
    names: dict[str, list[str]] = {kind: [] for kind in RELATIONS}
    for place, thing in enumerate(things):
        # Two of each kind first, so that every relation has somewhere to lead to; the others by their shares.
        kinds = list(RELATIONS)
        kind = (
            kinds[place % len(kinds)] if place < 2 * len(kinds) else rng.choices(kinds, [*shares.values()])[0]
        )
        names[kind].append(thing)
    facts = relate(names, rng)
    shown = [fact for fact in facts if rng.random() >= missing]
    paragraphs, titles, sources = write_paragraphs(shown, is_article)
    told = [
        Passage(id=str(n), title=t, text=text)
        for n, (t, text) in enumerate(zip(titles, paragraphs, strict=True))
    ]
    for fact in shown:
        if rng.random() < changed:
            near = rng.sample(names[LEADS_TO[fact.relation]], 2)
            other = near[0] if near[0] != fact.answer else near[1]
            text = f"The {fact.relation} of {fact.subject} was {other}."
            told.append(Passage(id=str(len(told)), title=fact.subject, text=text))
    return Facts(facts=tuple(facts), by_subject=by_thing(facts), sources=sources, passages=tuple(told))


@lru_cache(maxsize=4)
def read_texts(path: str) -> Texts:
    """Return the corpus of texts at `path`, read once; a sentence that two titles say is not asked about.

    Raises:
        DataError: it cannot be read, or has hardly a sentence to ask about.
    """
    passages = read_passages(path)
    titles: dict[str, set[str]] = {}
    found: dict[str, int] = {}
    for number, passage in enumerate(passages):
        for said in SENTENCE_END.split(passage.text):
            if _can_be_asked(said, passage.title):
                titles.setdefault(said, set()).add(passage.title)
                found.setdefault(said, number)
    sentences = tuple((number, said) for said, number in found.items() if len(titles[said]) == 1)
    if len(sentences) < FEWEST_SENTENCES:
        raise DataError(
            f"corpus {path!r}: got {len(sentences)} sentences of {SENTENCE_WORDS.start} to {SENTENCE_WORDS.stop - 1} "
            f"words without their title; give texts with titles and at least {FEWEST_SENTENCES} of them"
        )
    return Texts(passages=passages, sentences=sentences)


@lru_cache(maxsize=4)
def numbers_in(corpus: Facts | Texts) -> Mapping[str, int]:
    """Return the number of each passage of `corpus`, by its id."""
    return {passage.id: number for number, passage in enumerate(corpus.passages)}


@lru_cache(maxsize=4)
def index_over(corpus: Facts | Texts, kind: str) -> Indexed:
    """Return the index over `corpus`, made once in a process."""
    return Indexed(corpus.passages, kind)


def _spell(number: int, length: int) -> list[str]:
    syllables: list[str] = []
    for _ in range(length):
        number, place = divmod(number, len(SYLLABLES))
        syllables.append(SYLLABLES[place])
    return syllables
