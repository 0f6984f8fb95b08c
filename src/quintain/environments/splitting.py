"""Train and eval tasks that differ in what they show, not in their seeds alone.

A world draws its content again until a hash of it falls on the side of the task's split: half of all contents belong
to train and half to eval, whatever the seeds. Equal content is never in both.
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar

from quintain.types import Task, derive_seed

T = TypeVar("T")


def split_draw(task: Task, draw: Callable[[Random], T]) -> T:
    """Return the first value of ``draw(task.rng)`` that belongs to the split of `task`.

    The value's ``repr`` is its content: give frozen data that says all there is to know of the task.
    """
    while True:
        value = draw(task.rng)
        if is_eval(value) == (task.split == "eval"):
            return value


def is_eval(value: object) -> bool:
    """Whether content `value` belongs to eval."""
    return derive_seed("split", repr(value)) & 1 == 1
