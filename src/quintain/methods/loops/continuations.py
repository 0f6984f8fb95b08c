"""What could be said in turns of recorded episodes, beside what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What could be said in a turn of a recorded episode: ``Continuation(episode=t, weight=0.5)``."""

    episode: Trajectory
    """the turns before, and this one as its last; it was not carried out"""
    weight: float
    """how much it counts among the continuations of its turn, which add up to 1"""


Continuations = Sequence[Sequence[Sequence[Continuation]]]
"""[episode][turn] → continuations"""
