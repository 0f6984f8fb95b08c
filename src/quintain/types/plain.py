"""Numbers and truth values of other packages (numpy's, a tensor with one element) as Python's own.

No package is imported for it: whatever has `item` says itself what it holds.
"""

from collections.abc import Callable
from numbers import Real
from typing import cast


def as_number(value: object) -> float | None:
    """Return the real number that `value` is; None where it is none: ``as_number(np.float32(1))`` is 1.0."""
    own = _own(value)
    return float(own) if isinstance(own, Real) else None


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
