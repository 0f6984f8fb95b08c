"""How well each skill is known: counts of tries, rates with an error, and a draw of those that are weak."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quintain.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How often a skill was tried and how often it succeeded: ``Known(tries=8, successes=2)``."""

    tries: int = 0
    successes: int = 0

    @property
    def rate(self) -> float:
        """The success to be expected, (s + 1) / (n + 2): ½ without a try, and never quite 0 or 1 on a few."""
        return (self.successes + 1) / (self.tries + 2)

    @property
    def error(self) -> float:
        """The standard deviation of `rate`, of a Beta(s + 1, n - s + 1)."""
        return math.sqrt(self.rate * (1 - self.rate) / (self.tries + 3))


Report = Mapping[str, Known]
"""skill → how well it is known; a skill that is not there was never tried"""


def count_skills(tries: Iterable[tuple[str, bool]]) -> dict[str, Known]:
    """Return what `tries`, (skill, success) each, say of each skill that was tried."""
    found: dict[str, Known] = {}
    for skill, is_success in tries:
        old = found.get(skill, Known())
        found[skill] = Known(tries=old.tries + 1, successes=old.successes + is_success)
    return found


def draw_weak(report: Report, skills: Sequence[str], count: int, seed: int) -> list[str]:
    """Return `count` of `skills`, drawn in proportion to how often each fails; none twice while there are others.

    Raises:
        UsageError: there are no skills.
    """
    if not skills:
        raise UsageError("weak skills: got no skill to choose from; name one")
    rng = np.random.default_rng(seed)
    failing = np.array([1 - report.get(skill, Known()).rate for skill in skills])
    chosen: list[str] = []
    while len(chosen) < count:
        size = min(count - len(chosen), len(skills))
        places: list[int] = rng.choice(len(skills), size, replace=False, p=failing / failing.sum()).tolist()
        chosen += [skills[place] for place in places]
    return chosen
