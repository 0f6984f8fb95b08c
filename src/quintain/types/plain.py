"""Numbers and truth values of other packages (numpy's, a tensor with one element) as Python's own.

No package is imported for it: whatever has `item` says itself what it holds.
"""

from collections.abc import Callable, Iterable
from math import inf
from numbers import Real
from statistics import fmean
from typing import cast

MAX_AMOUNT = 1e15
"""Size of the largest reward, or term of one: the squares of a whole step, added up, are finite in 32 bits."""


def as_number(value: object) -> float | None:
    """Return the real number that `value` is; None where it is none: ``as_number(np.float32(1))`` is 1.0.

    One that is too large for a float is infinite.
    """
    own = _own(value)
    if not isinstance(own, Real):
        return None
    try:
        return float(own)
    except OverflowError:
        return inf if cast(int, own) > 0 else -inf


def as_amount(value: object) -> float | None:
    """Return the number that `value` is, if it may be paid: at most `MAX_AMOUNT` in size; else None."""
    number = as_number(value)
    return number if number is not None and -MAX_AMOUNT <= number <= MAX_AMOUNT else None


def mean_of(numbers: Iterable[float]) -> float:
    """Return the mean of `numbers`; neither they nor their sum need be finite, as losses are what they are."""
    known = list(numbers)
    try:
        return fmean(known)
    except (OverflowError, ValueError):  # a sum that is too large, or inf - inf
        return sum(number / len(known) for number in known)


def as_truth(value: object) -> bool | None:
    """Return the truth value that `value` is; None where it is none: ``as_truth(np.bool_(True))`` is True."""
    own = _own(value)
    return own if isinstance(own, bool) else None


def _own(value: object) -> object:
    """Return what `value` holds where it holds one thing, itself otherwise."""
    item: object = getattr(value, "item", None)
    if isinstance(value, Real) or not callable(item):
        return value
    try:
        return cast(Callable[[], object], item)()
    except (TypeError, ValueError, RuntimeError):
        return value
