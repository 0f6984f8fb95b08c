"""r = w/√N(s): a bonus for states that were met rarely, counted over all episodes of the run.

Count-based exploration (Strehl and Littman 2008; arXiv 1606.01868). N(s) counts the visits up to and including the
step at hand, so the order of episodes within a step means nothing. The bonus of a turn is for the state that its
action led to. States are counted by task unless the caller names another scope, because equal keys of different tasks
are different states.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from quintain.rewards.terms import Term, acts
from quintain.types import Group, Task, Trajectory


def by_task(task: Task) -> str:
    """Return the id of `task`: each task counts its own states."""
    return task.id


def by_environment(task: Task) -> str:
    """Return the environment of `task`: all tasks of one environment count together."""
    return task.environment


class Visits:
    """How often each state was met: ``visits.update(groups)``, then ``visits.bonus(0.1)`` as a term."""

    def __init__(self, scope: Callable[[Task], str] = by_task) -> None:
        self.scope = scope
        self.counts: Counter[tuple[str, str]] = Counter()

    def update(self, groups: Sequence[Group]) -> None:
        """Count the states of all trajectories of `groups`, of failures too: they were visited."""
        for group in groups:
            for trajectory in group.trajectories:
                name = self.scope(trajectory.task)
                self.counts.update((name, t.state_key) for t in acts(trajectory) if t.state_key is not None)

    def bonus(self, weight: float = 0.1) -> Term:
        """Return the term "visits": 1/√N of the state that each action led to; the last one's is not recorded.

        A plan or a draft leads nowhere: states are counted, and paid for, where something was done.
        """
        return Term(name="visits", measure=self._measure, weight=weight)

    def _measure(self, trajectory: Trajectory) -> list[float]:
        name = self.scope(trajectory.task)
        reached = iter([*(turn.state_key for turn in acts(trajectory)[1:]), None])
        keys = [None if turn.is_internal else next(reached) for turn in trajectory.turns]
        return [0.0 if key is None else self.counts[name, key] ** -0.5 for key in keys]


def pay_untried(weight: float = 1.0) -> Term:
    """Return the term "untried": 1 for every action that is tried for the first time in its episode.

    The exploration bonus of "LLMs are Greedy Agents" (arXiv 2504.16078). Actions that could not be read or carried
    out are no try, nor is what an agent says to itself: a plan worded anew earns nothing.
    """
    return Term(name="untried", measure=_measure_untried, weight=weight)


def _measure_untried(trajectory: Trajectory) -> list[float]:
    seen: set[object] = set()
    bonuses: list[float] = []
    for turn in trajectory.turns:
        key = (turn.action.text, repr(turn.action.tool_calls))
        is_try = turn.is_valid and turn.action.error is None and not turn.is_internal
        bonuses.append(float(is_try and key not in seen))
        if is_try:
            seen.add(key)
    return bonuses
