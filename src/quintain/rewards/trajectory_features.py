"""How alike two trajectories are that should do the same: features of MAG-V (arXiv 2412.04494), 1 where they are equal.

One trajectory answers a question, the other a question that was written from the first one's answer and end state.
Calls are compared by name and order (1 - edit distance), by arguments (overlap of name, argument, value) and by which
call follows which (overlap of pairs); questions and answers by their words. All lie in [0, 1], and none knows which
trajectory is right.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from quintain.rewards.dialogue import edit_distance

NAMES = ("calls", "arguments", "pairs", "question", "answer")
"""What each feature compares, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A trajectory as it is compared: ``Told(question="Refund order 15.", calls=(("refund", {"order": 15}),), …)``."""

    question: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    """name and arguments of each call, in order"""
    answer: str


def compare_trajectories(
    one: Told, other: Told, *, likeness: Callable[[str, str], float]
) -> tuple[float, ...]:
    """Return the features `NAMES` of two trajectories; `likeness` of two texts lies in [0, 1].

    Example: calls a, b and a, c without arguments → calls .5, arguments 1/3, pairs 0.
    """
    names, others = ([name for name, _ in told.calls] for told in (one, other))
    return (
        1.0 - edit_distance(names, others),
        overlap(_arguments(one), _arguments(other)),
        overlap(list(pairwise(names)), list(pairwise(others))),
        likeness(one.question, other.question),
        likeness(one.answer, other.answer),
    )


def overlap(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """Return how many different things both hold, over those that either holds; two empty ones are equal: 1."""
    left, right = set(one), set(other)
    return len(left & right) / len(left | right) if left | right else 1.0


def _arguments(told: Told) -> list[Hashable]:
    """Return each call's name with each argument; a call without any by its name alone. 1 and "1" differ."""
    return [
        part
        for name, given in told.calls
        for part in ([(name, key, repr(value)) for key, value in given.items()] or [(name,)])
    ]
