"""Schedules: values that change with the step, and with nothing else.

A schedule is called with the step and keeps no state, so it reads the same after a resume.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, TypeVar

from quintain.errors import UsageError

Value = TypeVar("Value")


class Stages(Generic[Value]):
    """Values by step: ``Stages(((0, {"rooms": 1}), (100, {"rooms": 2})))`` has one room until step 99.

    A value may be anything: an interaction limit, a curriculum, keyword arguments of an environment.
    """

    def __init__(self, stages: Sequence[tuple[int, Value]]) -> None:
        """Take pairs (first step, value); the first stage starts at step 0."""
        self.starts = tuple(start for start, _ in stages)
        self.values = tuple(value for _, value in stages)
        if not self.starts or self.starts[0] != 0 or list(self.starts) != sorted(set(self.starts)):
            raise UsageError(
                f"stages must start at step 0 and at increasing steps: got {list(self.starts)}; "
                "give the first step of each stage, in order"
            )

    def number(self, step: int) -> int:
        """Return the number of the stage that `step` is in, counted from 0."""
        return max(bisect_right(self.starts, step) - 1, 0)

    def at(self, step: int) -> Value:
        """Return the value at `step`."""
        return self.values[self.number(step)]


def linear(step: int, *, first: tuple[int, float], last: tuple[int, float]) -> float:
    """Return the value at `step` on the line through two points (step, value), constant beyond them.

    Example: ``linear(5, first=(0, 1.0), last=(10, 0.0))`` is 0.5. Two points at one step make a jump.
    """
    (start, begin), (end, final) = first, last
    if end < start:
        raise UsageError(f"a schedule must end after it starts: got steps {start} to {end}; swap them")
    if step >= end:
        return final
    if step <= start:
        return begin
    return begin + (final - begin) * (step - start) / (end - start)
