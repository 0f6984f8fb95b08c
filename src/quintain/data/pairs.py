"""Groups to preference pairs: within a group the higher outcome is chosen over the lower.

Episodes of one task only are compared, and only where their outcomes differ by more than a margin (ETO, arXiv
2403.02502). The result depends on the groups alone: ties go to the lower index, the order is theirs. A failure is on
no side of a pair.
"""

from collections.abc import Sequence

from quintain.types import Group, Pair, Score, Trajectory


def best_and_worst(groups: Sequence[Group], *, margin: float = 0.0) -> list[Pair]:
    """Return the best against the worst of each group, where they differ by more than `margin`."""
    pairs: list[Pair] = []
    for group in groups:
        ranked = _rank(group)
        if ranked and (pair := _pair(ranked[0], ranked[-1], margin)):
            pairs.append(pair)
    return pairs


def _rank(group: Group) -> list[Trajectory]:
    return sorted(group.scored, key=lambda trajectory: (-_value(trajectory), trajectory.index))


def _value(trajectory: Trajectory) -> float:
    assert isinstance(trajectory.outcome, Score), "scored trajectories have a Score"
    return trajectory.outcome.value


def _pair(better: Trajectory, worse: Trajectory, margin: float) -> Pair | None:
    difference = _value(better) - _value(worse)
    return Pair(chosen=better, rejected=worse, margin=difference) if difference > max(margin, 0.0) else None
