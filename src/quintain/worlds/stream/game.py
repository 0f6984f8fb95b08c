"""Facts scattered over a long text that is read page by page, with the question known from the start.

Families it stands for: reading with a bounded memory, such as MemAgent's RULER tasks (arXiv 2507.02259) and MEM1's
several questions at once (2506.15841), and knowing when not to search. A page that was read is not shown again, and
every page costs the same, needed or not.
"""

import re
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.environments.words import KEYS
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, ToolError, derive_seed
from quintain.worlds.stream.text import Book, Question, Shape, draw_book, note_facts

ANSWER = re.compile(r"answer\s+(-?\d{1,9})\s*[.!]?", re.IGNORECASE)
FORM = "write `read` or `answer` and a number"
PROCESS_SHARE = 0.5
"""What a dense reward pays for reading the needed pages, out of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A reader as a value: ``State(book=book, page=2, answered=(), num_calls=2)``."""

    book: Book
    page: int = 0
    """pages read so far"""
    answered: tuple[bool, ...] = ()
    """which answers were right"""
    num_calls: int = 0


@dataclass(kw_only=True, eq=False)
class Stream(Environment):
    """Read until you know the answer.

    Act: read, or answer and a number.
    """

    name = "stream"
    tags: ClassVar[frozenset[str]] = frozenset({"memory", "reasoning"})

    pages: int = 4
    facts: int = 3
    """facts on a page"""
    filler: int = 0
    """remarks on a page that say nothing"""
    questions: int = 1
    terms: int = 1
    """keys that a question adds up"""
    hops: int = 1
    """facts that lead from a key to its value"""
    values: int = 10
    """values are 0 to `values` - 1"""
    keys: int = 16
    """different keys that facts are about"""
    corrections: float = 0.0
    """share of facts that are corrected further on"""
    closed_book: float = 0.2
    """share of tasks whose question says all that is needed"""
    decoys: int = 0
    """facts about other keys that are told with an open question, for each that a closed one tells"""
    cut: bool = False
    """whether pages may end within a fact"""
    reminder: bool = True
    """whether each page repeats the questions"""
    cost: float = 0.02
    """what a page costs"""
    tool_failures: float = 0.0
    """share of pages that do not open"""
    dense: bool = False
    """whether needed pages are paid for, too"""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            UsageError: they contradict each other or are out of range.
        """
        self._shape = self._check_shape()
        needed, asked = self._shape.most_needed, self.questions * self.terms * self.hops
        if needed > self.pages * self.facts:
            raise UsageError(
                f"stream: got {self.pages * self.facts} facts for questions that need up to {needed}; "
                "write more pages or ask for less"
            )
        if not 0 <= self.decoys * asked <= self.pages * self.facts - needed:
            raise UsageError(
                f"stream: got decoys={self.decoys} for each of {asked} facts, and {self.pages * self.facts - needed} "
                "other ones; give 0 or more, and more pages or facts"
            )
        if not asked + 2 <= self.keys <= len(KEYS):
            raise UsageError(
                f"stream: got keys={self.keys} for questions about {asked}; "
                f"give at least two more keys, and at most {len(KEYS)}"
            )
        if not 0 <= self.cost * self.pages < 1 or self.tool_failures == 1:
            raise UsageError(
                f"stream: got cost={self.cost} for {self.pages} pages and tool_failures={self.tool_failures}; "
                "all pages together must cost less than an answer is worth, and some must open"
            )
        self.max_turns = 2 * (self.pages + self.questions)
        self.return_range = (-self.cost * self.pages, 1.0)
        self._answers = tuple(f"answer {number}" for number in range(self.terms * (self.values - 1) + 1))
        self._state = State(book=Book(known="", pages=(), questions=()))

    def _check_shape(self) -> Shape:
        """Return how books are drawn."""
        counts = (self.pages, self.facts, self.questions, self.terms, self.hops)
        shares = (self.corrections, self.closed_book, self.tool_failures)
        are_shares = all(0 <= share <= 1 for share in shares)
        if min(counts) < 1 or self.filler < 0 or self.values < 1 + (self.corrections > 0) or not are_shares:
            raise UsageError(
                f"stream: got pages, facts, questions, terms, hops {counts}, filler={self.filler}, values="
                f"{self.values} and the shares {shares}; give at least 1 of each, 2 values where facts "
                "are corrected, and shares from 0 to 1"
            )
        return Shape(
            pages=self.pages,
            facts=self.facts,
            filler=self.filler,
            questions=self.questions,
            terms=self.terms,
            hops=self.hops,
            values=self.values,
            corrections=self.corrections,
            closed_book=self.closed_book,
            is_cut=self.cut,
            keys=self.keys,
            decoys=self.decoys,
        )

    def reset(self, task: Task) -> str:
        """Open the book of the task and ask."""
        self._state = State(book=split_draw(task, lambda rng: draw_book(rng, self._shape)))
        book = self._state.book
        return " ".join(part for part in (f"{len(book.pages)} pages.", book.known, self._ask()) if part)

    def step(self, action: Action) -> StepResult:
        """Read the next page, or answer the question that is open."""
        text = action.text.strip()
        written = ANSWER.fullmatch(text)
        if action.error is None and written:
            return self._answer_given(int(written[1]))
        if action.error is None and text.lower() == "read":
            return self._read()
        problem = action.error or FORM
        return StepResult(observation=f"Error: {problem}", is_valid=False, is_success=False)

    def legal_actions(self) -> tuple[str, ...]:
        """Return all answers in range, and `read` while there are pages."""
        return ("read", *self._answers) if self._state.page < len(self._state.book.pages) else self._answers

    def expert_action(self) -> Action:
        """Answer as soon as the answer is known, else read; where facts may be corrected, read to the end."""
        now = self._state
        if now.page < self._count_needed(self._open()):
            return Action(text="read")
        return Action(text=f"answer {self._open().answer}")

    def mistaken_action(self, rng: Random) -> Action:
        """Answer too early or wrongly, or read on; see `noisy.Fallible`."""
        can_read = self._state.page < len(self._state.book.pages)
        if can_read and rng.random() < 0.5:
            return Action(text="read")
        return Action(text=rng.choice(self._answers))

    def methods(self) -> tuple[str, ...]:
        """Return the two ways to answer: at once, or only after reading; see `noisy.Methodical`."""
        return ("direct", "reading")

    def act_by(self, method: str, rng: Random) -> Action:
        """Answer at once, by a guess where nothing is known; or read one page at least, and until it is known."""
        now = self._state
        is_known = now.page >= self._count_needed(self._open())
        if method == "reading" and now.page < len(now.book.pages) and not (is_known and now.page):
            return Action(text="read")
        return (
            Action(text=f"answer {self._open().answer}")
            if is_known
            else Action(text=rng.choice(self._answers))
        )

    def needs_reading(self) -> bool:
        """Whether the question that is open cannot be answered from what was shown so far."""
        return self._state.page < max(self._open().pages, default=0)

    def privileged(self) -> str:
        """Return the answers and the pages that are needed, which the reader cannot see."""
        told = (f"{found.text} {found.answer} (pages {found.pages})" for found in self._state.book.questions)
        return "; ".join(told)

    def notes(self) -> str:
        """Return the facts on the pages read so far that questions still open need; see `TakesNotes`."""
        now = self._state
        keys = [key for found in now.book.questions[len(now.answered) :] for key in found.keys]
        return note_facts(now.book.pages, now.page, keys)

    def snapshot(self) -> State:
        """Return the book and the reader's place in it."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._state = state

    def state_key(self) -> str:
        """Return a key of the book, the place in it and the answers given."""
        now = self._state
        calls = now.num_calls if self.tool_failures else 0
        return f"{derive_seed(repr(now.book))}:{now.page}:{now.answered}:{calls}"

    def _open(self) -> Question:
        """Return the question that is to be answered next, or the last one."""
        questions = self._state.book.questions
        return questions[min(len(self._state.answered), len(questions) - 1)]

    def _ask(self) -> str:
        """Return the questions that are still open."""
        return " ".join(found.text for found in self._state.book.questions[len(self._state.answered) :])

    def _count_needed(self, question: Question) -> int:
        """Return how many pages must be read before `question` can be answered for certain."""
        if question.pages and self._shape.corrections:
            return len(self._state.book.pages)
        return max(question.pages, default=0)

    def _read(self) -> StepResult:
        """Show the next page."""
        now = self._state
        if now.page >= len(now.book.pages):
            return StepResult(observation="Error: there are no more pages", is_valid=False, is_success=False)
        has_failed = self.tool_failures > 0 and self._chance() < self.tool_failures
        self._state = replace(now, page=now.page + (not has_failed), num_calls=now.num_calls + 1)
        if has_failed:
            told = "Error: the page did not open, try again"
            failure = ToolError(tool="read", cause="tool_error")
            return StepResult(observation=told, is_success=False, tool_errors=(failure,))
        terms = self._reading_terms(now.page)
        told = f"Page {self._state.page}: {now.book.pages[now.page]}"
        return StepResult(
            observation=f"{told} {self._ask()}" if self.reminder else told,
            reward=sum(terms.values()),
            is_success=False,
            reward_terms=terms,
        )

    def _chance(self) -> float:
        """Return a number from 0 to 1 that depends on the book and the number of pages tried."""
        now = self._state
        return derive_seed("stream failure", repr(now.book.questions), now.num_calls) % 10_000 / 10_000

    def _reading_terms(self, before: int) -> dict[str, float]:
        """Return what the page after page `before` costs, and what a dense reward pays for it."""
        questions = self._state.book.questions
        still_open = questions[len(self._state.answered) :]
        is_needed = any(before < self._count_needed(question) for question in still_open)
        terms = {"reading" if is_needed else "needless_reading": -self.cost}
        wanted = {page for question in questions for page in question.pages}
        if self.dense and before + 1 in wanted:
            terms["found"] = PROCESS_SHARE / len(wanted)
        return terms

    def _answer_given(self, number: int) -> StepResult:
        """Grade an answer; the last one ends the episode."""
        now, question = self._state, self._open()
        is_right = number == question.answer
        self._state = replace(now, answered=(*now.answered, is_right))
        is_over = len(self._state.answered) == len(now.book.questions)
        has_process = self.dense and any(found.pages for found in now.book.questions)
        worth = (1 - PROCESS_SHARE if has_process else 1.0) / len(now.book.questions)
        value = worth if is_right else 0.0
        return StepResult(
            observation="Thank you." if is_over else f"Next: {self._ask()}",
            reward=value,
            is_terminated=is_over,
            is_success=is_over and all(self._state.answered),
            reward_terms={"answer": value},
        )
