"""Verdicts of a judge that cannot be read: a bounded share of them is counted and left out, more end what asked.

A judge answers out of form now and then, and an endpoint fails. Whoever asks thousands of questions bears some of that;
a judge of whom nothing can be read is refused with what it said, and never taken for one who gives nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from quintain.errors import FailureRateError
from quintain.rollout.failures import one_line
from quintain.types import Failure

FEW = 3
"""Verdicts that are borne however few there were."""
UNREAD = "verdicts/unread"
"""Metric: share of verdicts that could not be read."""


class Verdicts:
    """Takes in what a judge gave, and bears a share without a score: ``Verdicts(0.01).read([0.7, failure])``."""

    def __init__(self, most: float, *, flag: str = "--max-broken") -> None:
        """Bear the share `most`, which the user raises by `flag`; 1: all. Empty: nobody can raise it."""
        self._most, self._flag = most, flag
        self._asked, self._unread = 0, list[Failure]()
        self._noted = (0, 0)
        """how many were asked for, and how many of these could not be read, when they were measured last"""

    def read(self, scores: Sequence[float | Failure]) -> list[float | None]:
        """Return `scores` with None in the place of those that could not be read.

        Raises:
            FailureRateError: these are too many, of all until now, or all that there were.
        """
        self._asked += len(scores)
        self._unread += [score for score in scores if isinstance(score, Failure)]
        unread = len(self._unread)
        is_silent = unread == self._asked > 1 and self._most < 1
        if unread and (is_silent or unread > max(self._most * self._asked, FEW if self._most else 0)):
            first, more = self._unread[0], f"; or bear more with {self._flag}"
            raise FailureRateError(
                f"verdicts of a judge: got {unread} of {self._asked} that cannot be used"
                f"{'' if is_silent else f', more than {self._most:.1%}'}; the first ({first.kind}): "
                f"{one_line(first.message)}{more if self._flag and not is_silent else ''}"
            )
        return [None if isinstance(score, Failure) else score for score in scores]

    def measure(self) -> dict[str, float]:
        """Return the share without a score of the verdicts since this was asked last; {} where there were none."""
        asked, unread = self._asked - self._noted[0], len(self._unread) - self._noted[1]
        self._noted = (self._asked, len(self._unread))
        return {UNREAD: unread / asked} if asked else {}
