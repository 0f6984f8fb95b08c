"""A chain of sums in steps, of which a solver gets some wrong and may go back over them (RL of Thoughts, 2505.14140).

Five blocks: `step` takes the next step; `decompose` writes the steps down first, after which hard ones are easier;
`debate` lets two answers to the next step compete, where they differ; `refine` goes over all that was done; `stop`
hands in. After each block the solver rates itself by seven numbers from 1 to 3. A script's ratings are true but for
noise of deviation `noise` before they are rounded. A step that is wrong stays wrong until it is refined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from quintain.worlds.solver.problem import BEGIN, STOP, read_integers

STEP, DECOMPOSE, DEBATE, REFINE = "step", "decompose", "debate", "refine"
RATED = (
    "problem understood",
    "plainly written",
    "calculation right",
    "steps still to go",
    "other ways possible",
    "near the answer",
    "answer reached",
)
"""What the seven scores are about: correctness (3), complexity (2), completeness (2)."""
MOST_BLOCKS, MAX_PLAN = 8, 160
"""Blocks of an episode before it has to stop, and characters of a plan that are shown again."""
ERRORS: Mapping[tuple[bool, bool], float] = {
    (False, False): 0.15,
    (False, True): 0.15,
    (True, False): 0.5,
    (True, True): 0.15,
}
"""(is hard, is decomposed) → how often a scripted solver gets a step wrong"""
MISSED, SPOILED, MISJUDGED = 0.2, 0.15, 0.1
"""How often it refines what is wrong in vain, what is right to something wrong, and picks the worse of two answers."""


def error_rate(*, is_hard: bool, is_split: bool, errors: float) -> float:
    """Return how often a scripted solver gets a step wrong whose rates are `errors` times the usual ones."""
    return min(0.9, ERRORS[is_hard, is_split] * errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A problem, and how far it is solved: ``Chain(start=7, ops=(("+", 5), ("*", 3)), is_hard=False, value=7)``."""

    start: int
    ops: tuple[tuple[str, int], ...]
    is_hard: bool
    """whether its numbers are large, so that a scripted solver errs more"""
    value: int
    """what it comes to after the steps that are done, by the solver"""
    done: int = 0
    plan: str = ""
    used: int = 0
    """blocks so far"""
    calls: int = 0
    scores: tuple[int, ...] = (2,) * len(RATED)
    errors: float = 1.0
    """factor on all rates of errors of a scripted solver"""
    noise: float = 0.3

    @classmethod
    def draw(cls, rng: Random, *, steps: int, errors: float, noise: float) -> Chain:
        """Return a problem of two to `steps` steps."""
        is_hard = rng.random() < 0.5
        low, high = (10, 99) if is_hard else (1, 9)
        start = rng.randint(low, high)
        ops = tuple((rng.choice("+-"), rng.randint(low, high)) for _ in range(rng.randint(2, steps)))
        return cls(start=start, ops=ops, is_hard=is_hard, value=start, errors=errors, noise=noise)

    @property
    def content(self) -> tuple[int, tuple[tuple[str, int], ...]]:
        """What there is to know of the problem before anything is done."""
        return self.start, self.ops

    @property
    def is_so_far_right(self) -> bool:
        """Whether the value is that of the steps that are done."""
        return self.value == self._true_value(self.done)

    @property
    def is_right(self) -> bool:
        """See `Problem`."""
        return self.done == len(self.ops) and self.is_so_far_right

    @property
    def process(self) -> float:
        """See `Problem`: the share of the steps that is done, a quarter of it where something is wrong."""
        return self.done / len(self.ops) * (1.0 if self.is_so_far_right else 0.25)

    def describe(self) -> str:
        """See `Problem`."""
        return (
            f"{self._so_far()}\nScores: {' '.join(map(str, self.scores))}\nBlocks: {', '.join(self.legal())}"
        )

    def legal(self) -> tuple[str, ...]:
        """See `Problem`: nothing is refined or handed in before a step, and nothing is decomposed twice."""
        if self.used >= MOST_BLOCKS:
            return (STOP,)
        first = [STEP, *([] if self.plan else [DECOMPOSE]), DEBATE]
        return (*first, *([REFINE, STOP] if self.done else []))

    def ask(self, action: str, said: Sequence[str]) -> str:
        """See `Problem`; the last question of a block is for the seven scores."""
        if len(said) > self._count_questions(action, said):
            return ""
        if len(said) == self._count_questions(action, said):
            names = ", ".join(RATED)
            return f"{self._take(action, said)._so_far()}\nRate from 1 to 3, seven numbers: {names}."
        if action == DECOMPOSE:
            return f"{self._so_far()}\nWrite the steps that are left, shortly."
        if action == REFINE:
            return (
                f"{self._so_far()}\nGo over all steps so far again. Write the right result of them, a number."
            )
        if len(said) == 2:
            one, other = said
            return f"{self._so_far()}\nOne says {one}, the other {other}. Write the right number."
        if self.done == len(self.ops):
            return f"{self._so_far()}\nWrite the result, a number."
        sign, number = self.ops[self.done]
        return f"{self._so_far()}\nNext: {self.value} {sign} {number} = ? Write the number."

    def answer(self, action: str, said: Sequence[str], rng: Random) -> str:
        """See `Problem`."""
        if len(said) == self._count_questions(action, said):
            means = self._take(action, said)._true_scores()
            return " ".join(str(_rate(mean, self.noise, rng)) for mean in means)
        if action == DECOMPOSE:
            return "; ".join(f"{sign} {number}" for sign, number in self.ops)
        rate = error_rate(is_hard=self.is_hard, is_split=bool(self.plan), errors=self.errors)
        right = self._next_value()
        if action == REFINE:
            right = self._true_value(self.done)
            rate = min(0.9, self.errors * (SPOILED if self.is_so_far_right else MISSED))
            if not self.is_so_far_right:
                return str(self.value if rng.random() < rate else right)
        if len(said) == 2 and str(right) in said:
            other = next(text for text in said if text != str(right))
            return other if rng.random() < MISJUDGED else str(right)
        wrong = right + rng.choice((-10, -1, 1, 10))
        return str(wrong if rng.random() < rate else right)

    def apply(self, action: str, said: Sequence[str]) -> Chain:
        """See `Problem`; an answer without a number leaves the value as it is."""
        *words, rated = said
        return replace(self._take(action, words), scores=read_ratings(rated))

    def _take(self, action: str, words: Sequence[str]) -> Chain:
        """Return the problem after `action`, to whose questions `words` was answered, without new scores."""
        if action == BEGIN:
            return self
        known = replace(self, used=self.used + 1, calls=self.calls + len(words))
        if action == DECOMPOSE:
            return replace(known, plan=" ".join(words[0].split())[:MAX_PLAN] or "none")
        value = (read_integers(words[-1]) or (self.value,))[-1]
        return replace(known, value=value, done=min(self.done + (action != REFINE), len(self.ops)))

    def choose(self) -> str:
        """See `Problem`."""
        legal = self.legal()
        if not self.is_so_far_right and REFINE in legal:
            return REFINE
        if self.done == len(self.ops) or legal == (STOP,):
            return STOP
        return DECOMPOSE if self.is_hard and not self.plan else STEP

    def _count_questions(self, action: str, said: Sequence[str]) -> int:
        """Return how many questions `action` takes before that for the scores, as far as is known after `said`."""
        if action == DEBATE:
            return 2 + (len(said) >= 2 and read_integers(said[0]) != read_integers(said[1]))
        return int(action != BEGIN)

    def _so_far(self) -> str:
        """Return the problem and what is done."""
        steps = ", ".join(f"then {sign} {number}" for sign, number in self.ops)
        plan = f"\nPlan: {self.plan}" if self.plan else ""
        return f"Start with {self.start}, {steps}.{plan}\nAfter {self.done} of {len(self.ops)} steps: {self.value}"

    def _true_value(self, done: int) -> int:
        """Return what the first `done` steps come to."""
        return self.start + sum(number if sign == "+" else -number for sign, number in self.ops[:done])

    def _next_value(self) -> int:
        """Return what a step from here comes to if it is taken rightly; behind the last one nothing changes."""
        return self.value + self._true_value(min(self.done + 1, len(self.ops))) - self._true_value(self.done)

    def _true_scores(self) -> tuple[float, ...]:
        """Return the seven scores of one who knows everything."""
        left, is_right = len(self.ops) - self.done, self.is_so_far_right
        right = 3.0 if is_right else 1.0
        plain = 3.0 if self.plan or not self.is_hard else 1.0
        return (
            right,
            plain,
            right,
            min(1.0 + left, 3.0),
            3.0 if self.is_hard else 1.0,
            max(3.0 - left, 1.0),
            1.0 if left else 3.0,
        )


def read_ratings(text: str) -> tuple[int, ...]:
    """Return the seven scores in `text`; what is none, or missing, is 2: ``read_ratings("3 9 1")`` is 3, 2, 1, 2…"""
    found = [each if 1 <= each <= 3 else 2 for each in read_integers(text)]
    return (*found, *[2] * len(RATED))[: len(RATED)]


def _rate(mean: float, noise: float, rng: Random) -> int:
    """Return a score from 1 to 3 of `mean`, with `noise`."""
    return min(3, max(1, round(mean + rng.gauss(0.0, noise))))
