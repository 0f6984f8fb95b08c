"""The text of `stream`: pages of facts and remarks, and the questions that some of the facts answer.

A fact is ``red = 4.``, a link ``red = blue.``, a correction ``red = 7 (new).``; the last statement about a key
counts. The answer to a question follows from the pages that it needs, and from no page before them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from quintain.environments.noisy import SUBJECTS, VERBS
from quintain.environments.words import KEYS

FACT = re.compile(r"(\w+) = (\w+)(?: \(new\))?\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How long and how hard: ``Shape(pages=4, facts=3, filler=0, questions=1, ...)``."""

    pages: int
    facts: int
    """facts on a page"""
    filler: int
    """remarks on a page that say nothing"""
    questions: int
    terms: int
    """keys whose values are added up in a question"""
    hops: int
    """facts that lead from a key to its value"""
    values: int
    """values are 0 to `values` - 1"""
    corrections: float
    """share of the facts that are corrected later"""
    closed_book: float
    """share of tasks whose question says all that is needed"""
    is_cut: bool
    """whether pages may end within a fact"""
    keys: int
    """different keys that facts are about"""
    decoys: int = 0
    """facts told with an open question, which do not answer it, for each that a closed one tells"""

    @property
    def most_needed(self) -> int:
        """The largest number of sentences that the questions may need."""
        return self.questions * self.terms * self.hops * (2 if self.corrections else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``Question(text="red + blue?", answer=11, pages=(1, 3))``: pages 1 and 3 say what is needed."""

    text: str
    answer: int
    pages: tuple[int, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it asks for."""
        return tuple(self.text.removesuffix("?").split(" + "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """All there is to a task: ``Book(known="", pages=("red is 4. ...",), questions=(...))``."""

    known: str
    """what the reader is told beforehand"""
    pages: tuple[str, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """A key that is asked for, the sentences that lead to its value (old ones too), and the value."""

    key: str
    value: int
    sentences: tuple[tuple[str, ...], ...]
    """groups of one sentence, or of an old one and its correction, which must stay in this order"""


def draw_book(rng: Random, shape: Shape) -> Book:
    """Draw a book of `shape`."""
    keys = list(KEYS[: shape.keys])
    rng.shuffle(keys)
    asked = [
        [_chain(rng, shape, [keys.pop() for _ in range(shape.hops)]) for _ in range(shape.terms)]
        for _ in range(shape.questions)
    ]
    chains = [chain for question in asked for chain in question]
    is_closed = rng.random() < shape.closed_book
    sentences, places = _sentences(rng, shape, [] if is_closed else chains, keys)
    pages, page_of = _split_pages(sentences, shape)
    needed = {sentence: page_of[place] for sentence, place in places.items()}
    told = [group[-1] for chain in chains for group in chain.sentences]
    if not is_closed:
        others = [sentence for sentence in sentences if "=" in sentence and sentence not in needed]
        told = rng.sample(others, shape.decoys * len(told))
    known = " ".join(told)
    return Book(known=known, pages=pages, questions=tuple(_question(chains, needed) for chains in asked))


def note_facts(pages: Sequence[str], num: int, keys: Sequence[str]) -> str:
    """Return what the first `num` of `pages` say of `keys` and of those that they lead to, each fact once, the newest.

    Example: of ``red = 4. blue = 2. red = 7 (new).`` and red: ``red = 7.``. Words that a page ends within stay.
    """
    links = {found[1]: found[2] for found in FACT.finditer(" ".join(pages)) if found[2] in KEYS}
    wanted = list(keys)
    for key in keys:
        while (key := links.get(key, "")) and key not in wanted:
            wanted.append(key)
    read = " ".join(pages[:num])
    known = {found[1]: found[2] for found in FACT.finditer(read)}
    rest = read.rpartition(".")[2].strip()
    facts = [f"{key} = {known[key]}." for key in wanted if key in known]
    return " ".join([*facts, *([rest] if rest else [])])


def _chain(rng: Random, shape: Shape, keys: list[str]) -> _Chain:
    """Draw the facts that lead from the first of `keys` over the others to a value."""
    value = rng.randrange(shape.values)
    groups = [(f"{key} = {following}.",) for key, following in pairwise(keys)]
    return _Chain(key=keys[0], value=value, sentences=(*groups, _state_fact(rng, shape, keys[-1], value)))


def _state_fact(rng: Random, shape: Shape, key: str, value: int) -> tuple[str, ...]:
    """Return the sentence that gives `key` its `value`, after an older one that it corrects or alone."""
    if rng.random() >= shape.corrections:
        return (f"{key} = {value}.",)
    older = (value + rng.randrange(1, shape.values)) % shape.values
    return f"{key} = {older}.", f"{key} = {value} (new)."


def _sentences(
    rng: Random, shape: Shape, chains: Sequence[_Chain], keys: list[str]
) -> tuple[list[str], dict[str, int]]:
    """Return all sentences in order, and where those of `chains` stand; other facts are about `keys`."""
    count = shape.pages * shape.facts
    facts = [""] * count
    free = list(range(count))
    rng.shuffle(free)
    for group in (group for chain in chains for group in chain.sentences):
        for place, sentence in zip(sorted(free.pop() for _ in group), group, strict=True):
            facts[place] = sentence
    wanted = {sentence for chain in chains for group in chain.sentences for sentence in group}
    used: dict[str, int] = {}
    for place in sorted(free):
        facts[place] = _distractor(rng, shape, keys, used)
    sentences: list[str] = []
    for start in range(0, count, shape.facts):
        page = [*facts[start : start + shape.facts], *(_remark(rng) for _ in range(shape.filler))]
        order = sorted(range(len(page)), key=lambda _: rng.random())
        # Facts keep their order, so that corrections come after what they correct; remarks go in between.
        kept = iter(page[: shape.facts])
        sentences += [next(kept) if place < shape.facts else page[place] for place in order]
    return sentences, {sentence: sentences.index(sentence) for sentence in wanted}


def _distractor(rng: Random, shape: Shape, keys: list[str], used: dict[str, int]) -> str:
    """Return a fact that no question asks for; what `used` holds is corrected or said again."""
    key = rng.choice(keys)
    if key in used and rng.random() < shape.corrections:
        used[key] = (used[key] + rng.randrange(1, shape.values)) % shape.values
        return f"{key} = {used[key]} (new)."
    if key not in used and shape.hops > 1 and rng.random() < 0.5:
        return f"{key} = {rng.choice([other for other in keys if other != key])}."
    return f"{key} = {used.setdefault(key, rng.randrange(shape.values))}."


def _remark(rng: Random) -> str:
    return f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)}."


def _split_pages(sentences: list[str], shape: Shape) -> tuple[tuple[str, ...], list[int]]:
    """Return the pages, and for each sentence the page (from 1) on which it ends."""
    if not shape.is_cut:
        each = shape.facts + shape.filler
        pages = [" ".join(sentences[start : start + each]) for start in range(0, len(sentences), each)]
        return tuple(pages), [place // each + 1 for place in range(len(sentences))]
    words = [(word, place) for place, sentence in enumerate(sentences) for word in sentence.split()]
    each = -(-len(words) // shape.pages)
    page_of = [0] * len(sentences)
    for number, (_, place) in enumerate(words):
        page_of[place] = number // each + 1
    starts = range(0, len(words), each)
    return tuple(" ".join(word for word, _ in words[start : start + each]) for start in starts), page_of


def _question(chains: Sequence[_Chain], needed: dict[str, int]) -> Question:
    """Return the question for the sum of `chains`; the pages are empty where nothing needs reading."""
    finals = [group[-1] for chain in chains for group in chain.sentences]
    pages = sorted({needed[sentence] for sentence in finals if sentence in needed})
    return Question(
        text=" + ".join(chain.key for chain in chains) + "?",
        answer=sum(chain.value for chain in chains),
        pages=tuple(pages),
    )
