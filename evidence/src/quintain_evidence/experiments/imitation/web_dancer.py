"""WebDancer: a harder question has the same answer, and takes exactly one search more.

Questions of one fact over corpora of made names, made harder twice. What is measured knows nothing of how that is done:
the question is read as words, answered by the facts that paragraphs tell, and the least number of searches is found by
trying: from what was read so far, all queries of one or two words that were seen, and the question itself, each with
the paragraph that BM25 ranks first. A question counts as answered where what was read answers it, description by
description; that the answer's sentence was met by luck does not count, and is printed. The control describes another
thing of the same kind, by the same relation where there is one. Where nothing describes a thing, the question must come
back as it was.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Any

from quintain.types import derive_seed
from quintain.worlds.hopqa.facts import RELATIONS, Question, QuestionShape, draw_question, harder
from quintain.worlds.hopqa.search import index_of

SAID = re.compile(r"The (\S+) of (\S+) is (\S+)\.")
ASKED = re.compile(r"What is the (.+) of (\S+)\?")
IDLE = frozenset({"the", "of", "is", "what"})
KIND = {relation: kind for own in RELATIONS.values() for relation, kind in own}
"""relation → what kind of thing it leads to"""
ROUNDS = 2
MOST_SEARCHES = 4

Known = dict[tuple[str, str], str]
"""(thing, relation) → thing"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return how many harder questions have another answer or another number of searches than they should."""
    shape = QuestionShape(1, 1, int(options.get("distractors", 30)), 0.0, False, True)
    violations = trials = control_violations = control_trials = answered = changed = alone = 0
    luck: list[tuple[int, int]] = []
    for number in range(int(options.get("questions", 170))):
        rng = random.Random(derive_seed("web dancer", seed, number))
        question = draw_question(shape, rng)
        for _ in range(ROUNDS):
            before, made = Library(question), harder(question, 1, rng)
            if not before.describes(question.chain[0].subject):
                changed += made != question
                alone += 1
                break
            after = Library(made)
            searches = before.least(before.answers), after.least(after.answers)
            violations += (
                after.answer() != before.answer() or searches[0] is None or searches[1] != searches[0] + 1
            )
            trials += 1
            luck.append((before.least(before.meets(question)) or 0, after.least(after.meets(made)) or 0))
            other = elsewhere(made, rng)
            if other is not None:
                control_trials += 1
                control_violations += Library(other).answer() != before.answer()
                answered += Library(other).answer() is not None
            bare = without(question)
            changed += harder(bare, 1, rng) != bare
            alone += 1
            question = made
    return [
        {
            "violations": float(violations),
            "trials": float(trials),
            "control_violations": float(control_violations),
            "control_trials": float(control_trials),
            "extra.null_changed": float(changed),
            "extra.null_trials": float(alone),
            "extra.control_answered": answered / max(control_trials, 1),
            "extra.met_before": fmean(first for first, _ in luck),
            "extra.met_after": fmean(second for _, second in luck),
        }
    ]


@dataclass(slots=True)
class Library:
    """A question and its paragraphs, as someone sees them who searches."""

    question: Question
    found: dict[str, int] = field(default_factory=dict[str, int])
    """query → the paragraph that is ranked first; -1 for none"""

    def search(self, query: str) -> int:
        """Return the paragraph that a search shows."""
        if query not in self.found:
            own = self.question
            best = index_of(own.titles, own.paragraphs).best(query, 1)
            self.found[query] = best[0] if best else -1
        return self.found[query]

    def answer(self, read: Sequence[int] | None = None) -> str | None:
        """Return what the paragraphs numbered `read`, all unless given, answer to the question."""
        texts = self.question.paragraphs
        told = " ".join(texts if read is None else [texts[place] for place in read])
        known: Known = {(thing, relation): answer for relation, thing, answer in SAID.findall(told)}
        asked = ASKED.fullmatch(self.question.words())
        assert asked is not None, "questions are of one form"
        thing: str | None = asked[2]
        for relation in reversed(asked[1].split(" of the ")):
            thing = None if thing is None else known.get((thing, relation))
        return thing

    def answers(self, read: Sequence[int]) -> bool:
        """Whether what was `read` answers the question."""
        return self.answer(read) is not None

    def meets(self, question: Question) -> Callable[[Sequence[int]], bool]:
        """Return whether the answer's sentence was read, known for such or not."""
        return lambda read: question.sources[-1] in read

    def describes(self, thing: str) -> bool:
        """Whether a fact about another thing than those of the chain says `thing`."""
        chain = {fact.subject for fact in self.question.chain} | {fact.answer for fact in self.question.chain}
        told = SAID.findall(" ".join(self.question.paragraphs))
        return any(answer == thing and subject not in chain for _, subject, answer in told)

    def queries(self, read: Sequence[int]) -> list[str]:
        """Return what can be searched for: one or two words of the question and of what was read, and the question."""
        asked = self.question.words()
        texts = [asked, *(self.question.paragraphs[place] for place in read)]
        words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())} - IDLE)
        return [*words, *(f"{a} {b}" for a, b in combinations(words, 2)), asked]

    def least(self, is_enough: Callable[[Sequence[int]], bool]) -> int | None:
        """Return after how few searches what was read can be enough; None where `MOST_SEARCHES` are too few."""
        level = {frozenset[int]()}
        for count in range(MOST_SEARCHES + 1):
            if any(is_enough(sorted(read)) for read in level):
                return count
            level = {
                read | {self.search(query)} - {-1} for read in level for query in self.queries(sorted(read))
            }
        return None


def elsewhere(question: Question, rng: random.Random) -> Question | None:
    """Return `question` with the description of another thing of the kind; None where the corpus has none."""
    first = question.chain[0]
    told = [
        fact
        for fact in (type(first)(s, r, a) for r, s, a in SAID.findall(" ".join(question.paragraphs)))
        if KIND[fact.relation] == KIND[first.relation] and fact.answer != first.answer
    ]
    same = [fact for fact in told if fact.relation == first.relation]
    return replace(question, chain=(rng.choice(same or told), *question.chain[1:])) if told else None


def without(question: Question) -> Question:
    """Return `question` in a corpus in which nothing describes the thing that it is about."""
    thing = question.chain[0].subject
    kept = [k for k, text in enumerate(question.paragraphs) if not text.endswith(f" is {thing}.")]
    return replace(
        question,
        paragraphs=tuple(question.paragraphs[k] for k in kept),
        titles=tuple(question.titles[k] for k in kept),
        sources=tuple(kept.index(k) for k in question.sources),
    )
