"""What a problem of `solver` is: what may be done about it, what the solver is asked, what comes of its answers.

A problem is frozen data: what is done returns another one. An action takes as many questions as it needs, one after
the other, each of which knows what was answered to those before. Answers are words, whoever gives them, and are read
in one place; a script that errs answers in the same words as a model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Protocol, Self

BEGIN, STOP = "begin", "stop"
"""What is done before the first choice, and what ends an episode."""
INTEGER = re.compile(r"-?\d{1,12}")


class Problem(Protocol):
    """A problem and what was done about it so far."""

    @property
    def calls(self) -> int:
        """Questions that the solver has answered, but for those about itself."""
        ...

    @property
    def process(self) -> float:
        """How far it is come, from 0 to 1, by what only the environment knows: for rewards in training."""
        ...

    @property
    def is_right(self) -> bool:
        """Whether the answer that there is now is right."""
        ...

    def describe(self) -> str:
        """Return what is shown to whoever decides."""
        ...

    def legal(self) -> tuple[str, ...]:
        """Return what may be done now."""
        ...

    def ask(self, action: str, said: Sequence[str]) -> str:
        """Return the next question of `action` to the solver, after the answers `said`; empty: it needs no more."""
        ...

    def answer(self, action: str, said: Sequence[str], rng: Random) -> str:
        """Return what a solver that errs says to that question."""
        ...

    def apply(self, action: str, said: Sequence[str]) -> Self:
        """Return the problem after `action`, to whose questions `said` was answered."""
        ...

    def choose(self) -> str:
        """Return what is done by one who knows what is right and when the solver errs."""
        ...


def read_integers(text: str) -> tuple[int, ...]:
    """Return the integers in `text`: ``read_integers("5, -3 and 8")`` is ``(5, -3, 8)``."""
    return tuple(map(int, INTEGER.findall(text)))
