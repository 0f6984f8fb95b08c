"""What a formula is compared with, and how: cases, the code that ships, and a plain second version of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula: ``Formula("credit.leave_one_out", "credit.group", ("leave_one_out",), …)``."""

    name: str
    """what a row's file lists"""
    module: str
    """where it stands, below `quintain`"""
    functions: tuple[str, ...]
    """functions of the module that compute it; what they call in it is mutated, too"""
    draw: Callable[[Rng], Any]
    """a random case"""
    ours: Callable[[ModuleType, Any], Sequence[float]]
    """(the module, a case) → all numbers that come out, gradients included"""
    reference: Callable[[Any], Sequence[float]]
    """the same numbers, computed another way"""
    aside: tuple[str, ...] = ()
    """functions that it calls for what is logged only"""
    exact: Callable[[ModuleType], float] | None = None
    """cosine of the formula's gradient with the exact one on an enumerable toy, where it has one"""


def flatten(nested: object) -> list[float]:
    """Return the numbers in lists of lists, arrays and tensors, in order."""
    if isinstance(nested, (int, float)):
        return [float(nested)]
    if hasattr(nested, "tolist"):
        return flatten(nested.tolist())  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(nested, (list, tuple)), "numbers, or lists of them"
    return [number for part in nested for number in flatten(part)]
