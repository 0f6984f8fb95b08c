"""r = α · economy(m, n) · right: the fewest necessary calls earn most, OTC (arXiv 2504.14870).

n is the fewest calls of any right answer to the task that the run has seen. The one rule: wrong answers teach nothing
about n, and gain nothing by few calls.
"""

from collections.abc import Sequence

from quintain.rewards.efficiency import Count, num_calls, scaled, tool_economy
from quintain.rewards.terms import Term
from quintain.types import Group, Trajectory, scored


class FewestCalls:
    """What each task was solved with: ``fewest.see(groups)``, then ``fewest.term(success())``."""

    def __init__(self, count: Count = num_calls) -> None:
        self.count = count
        self.known: dict[str, int] = {}

    def see(self, groups: Sequence[Group]) -> None:
        """Take in the right answers among `groups`."""
        for group in groups:
            for trajectory in group.scored:
                if trajectory.is_success:
                    name, num = trajectory.task.id, self.count(trajectory)
                    self.known[name] = min(num, self.known.get(name, num))

    def term(self, right: Term, *, smoothing: float = 4.0) -> Term:
        """Return the term that, added to `right`, multiplies it by the economy of the episode's calls."""

        def factor(trajectory: Trajectory) -> float:
            fewest = self.known.get(trajectory.task.id)
            return tool_economy(self.count(trajectory), fewest, smoothing=smoothing)

        return scaled(right, factor, name="economy")


def productivity(groups: Sequence[Group], count: Count = num_calls) -> float:
    """Return right answers per call over all scored episodes of `groups`; the right answers where no call was made."""
    episodes = scored(groups)
    return sum(t.is_success for t in episodes) / max(sum(count(t) for t in episodes), 1)
