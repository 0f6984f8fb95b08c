"""How long a call takes at best, and how long it may: bounds are for a usual machine, and wider on a slower one."""

import json
import time
from collections.abc import Callable

NUMBERS = f"[{'1.5e10,' * 20_000}1]"
USUAL = 0.015
"""Seconds of the processor that the work takes on the machine that the bounds are for."""
LAPS, MOST_LAPS = 5, 50


def fastest(call: Callable[[], object], limit: float = 0.0) -> float:
    """Return the seconds of the processor that `call` takes at best; it gets more laps to be below `limit`."""
    laps: list[float] = []
    while len(laps) < LAPS or (limit and min(laps) >= limit and len(laps) < MOST_LAPS):
        start = time.process_time()
        call()
        laps.append(time.process_time() - start)
    return min(laps)


def slowness() -> float:
    """Return how many times as long as usual plain work takes here and now; 1 on a faster machine."""
    return max(1.0, fastest(lambda: (json.loads(NUMBERS), sum(n & 3 for n in range(50_000)))) / USUAL)
