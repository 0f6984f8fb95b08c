"""How fast work grows with what it is given: a ratio, which is the same on a slow machine and on a busy one."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TIMES = 8
"""How many times as much the second of two sizes is."""
LAPS = 20
STEADY = 3 * TIMES
"""The most that work in proportion to its size grows; in proportion to the square of it, it grows by 64."""


def growth(make: Callable[[int], T], work: Callable[[T], object], size: int) -> float:
    """Return how many times as long `work` takes on what `make` gives for `size` as for an eighth of it.

    The sizes take turns, and the best of each counts; there are more laps only where the growth is not `STEADY`.
    """
    small, large = make(size // TIMES), make(size)
    best = [float("inf")] * 2
    for lap in range(LAPS):
        for place, given in enumerate((small, large)):
            start = time.process_time()
            work(given)
            best[place] = min(best[place], time.process_time() - start)
        if lap and best[1] < STEADY * best[0]:
            break
    return best[1] / max(best[0], 20e-6)
