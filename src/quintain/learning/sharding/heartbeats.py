"""Which of the ranks that compute together hangs, by what each says of itself while it is at work.

A rank that works is alive, and so is one that waits for another that hangs. So each says how many collectives it has
begun, and how many seconds of the processor its work has taken. While either grows in any of them, they are at work;
when all stand still, the others wait for the one that has begun the fewest collectives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

BEAT = 2.0
"""Seconds between two signs of life."""
SILENCE = 60.0
"""Seconds without a sign of life after which a rank hangs."""
START = 300.0
"""Seconds that a process may take until its first one."""
STILL = 60.0
"""Seconds after which ranks hang of which none goes on."""
STILL_ON_CARD = 180.0
"""The same on cards, where only collectives are counted: a processor that waits for its card looks busy."""
ANSWER = 1800.0
"""Seconds that a rank may take for one answer."""
WORK = 0.05
"""Seconds of the processor that are work."""
WAIT = "wait"
"""What a rank does that has nothing to do until it is asked."""
STILL_FOR = {
    **dict.fromkeys(("join", "build", "load", "save", "read_weights", "write_weights"), ANSWER),
    WAIT: inf,
}
"""What ranks do that is no work of processors only → seconds after which they hang of which none goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """How far the work of a rank has come: ``Heartbeat(collectives=12, seconds=3.5)``."""

    collectives: int = 0
    """that it has begun"""
    seconds: float = 0.0
    """of the processor"""


class HeartbeatMonitor:
    """Finds the rank among `count` that hangs: `begin` a question, `note` what ranks say, and `find_hung`."""

    def __init__(self, count: int, *, is_on_card: bool = False) -> None:
        self._count = count
        self._patience = STILL_ON_CARD if is_on_card else STILL
        self._waiting: set[int] = set()
        """ranks that have not answered yet"""
        self._limits = (SILENCE, STILL)
        self._last = dict[int, Heartbeat]()
        self._heard = dict[int, float]()
        self._moved = dict[int, float]()
        """when each rank last said something, and when it last went on"""

    def begin(self, do: str, now: float, ranks: Iterable[int] | None = None) -> None:
        """Note that all `ranks`, or those given, were asked to `do` something."""
        self._waiting = set[int]()  # nothing is found meanwhile
        everyone = [*(range(self._count) if ranks is None else ranks)]
        self._limits = START if do == "join" else SILENCE, STILL_FOR.get(do, self._patience)
        self._heard.update(dict.fromkeys(everyone, now))
        self._moved.update(dict.fromkeys(everyone, now))
        self._waiting = {*everyone}

    def note(self, rank: int, beat: Heartbeat, now: float) -> None:
        """Note a sign of life."""
        last = self._last.get(rank, Heartbeat())
        self._heard[rank] = now
        if beat.collectives != last.collectives or beat.seconds > last.seconds + WORK:
            self._last[rank], self._moved[rank] = beat, now

    def settle(self, rank: int) -> None:
        """Note that `rank` has answered."""
        self._waiting.discard(rank)

    def find_hung(self, now: float) -> tuple[int | None, str] | None:
        """Return which of the ranks that are waited for hangs, and how that is seen; None for none.

        Where all wait in the same collective, it is not known which.
        """
        silence, still = self._limits
        waiting = sorted(self._waiting)
        for rank in waiting:
            if (silent := now - self._heard[rank]) > silence:
                return rank, f"gave no sign of life for {silent:.0f} s and hangs"
        if not waiting or (stood := now - max(self._moved[rank] for rank in waiting)) <= still:
            return None
        begun = {rank: self._last.get(rank, Heartbeat()).collectives for rank in waiting}
        least, most = min(begun.values()), max(begun.values())
        if least == most and len(waiting) > 1:
            return (
                None,
                f"stands still for {stood:.0f} s, as all do, in collective {least}; see their network",
            )
        found = next(rank for rank in waiting if begun[rank] == least)
        return found, f"stands still for {stood:.0f} s with {least} collectives, others have {most}; it hangs"
