"""Which episodes to keep: success, rank in the group, reward, novelty, a group that still teaches something.

Every filter takes groups and returns the groups that are left with the trajectories that are left, in order;
`quintain.types.flatten_scored` flattens the result. Filters keep or drop, they never change a trajectory.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

from quintain.errors import UsageError
from quintain.types import Group, Score, Trajectory


def successful(groups: Sequence[Group]) -> list[Group]:
    """Keep the trajectories that solved their task."""
    return _keep(groups, lambda trajectory, score: score.is_success)


def best_of_group(groups: Sequence[Group], count: int = 1) -> list[Group]:
    """Keep the `count` best of every group; of equal outcomes the fewest sampled tokens, then the lowest
    index.
    """
    if count < 1:
        raise UsageError(f"best trajectories of a group: got {count}; give at least 1")

    def rank(trajectory: Trajectory) -> tuple[float, int, int]:
        return -_score(trajectory).value, trajectory.num_sampled, trajectory.index

    best = [sorted(group.scored, key=rank)[:count] for group in groups]
    return _without_empty(
        [replace(group, trajectories=tuple(own)) for group, own in zip(groups, best, strict=True)]
    )


def shortest_successes(group: Group, count: int) -> tuple[Trajectory, ...]:
    """Return at most `count` successful trajectories of `group` whose answers differ, those of fewest turns."""
    different = {
        tuple(turn.completion.token_ids for turn in t.turns): t for g in successful([group]) for t in g.scored
    }
    return tuple(sorted(different.values(), key=lambda t: (len(t.turns), t.index))[:count])


def distinct(groups: Sequence[Group]) -> list[Group]:
    """Keep the first of the trajectories whose tokens, prompts included, are the same."""
    seen: set[bytes] = set()

    def is_new(trajectory: Trajectory, score: Score) -> bool:
        key = token_hash(trajectory)
        is_first = key not in seen
        seen.add(key)
        return is_first

    return _keep(groups, is_new)


def keep_solved_between(groups: Sequence[Group], low: float, high: float) -> list[Group]:
    """Keep whole groups whose share of solved trajectories is at least `low` and at most `high`.

    Data for the model at hand (arXiv 2510.11701): what it always or never solves teaches little.
    """
    if not 0 <= low <= high <= 1:
        raise UsageError(f"solved shares to keep: got {low} to {high}; give 0 <= low <= high <= 1")
    return [group for group in groups if group.scored and low <= _success_rate(group) <= high]


def without_truncated(groups: Sequence[Group]) -> list[Group]:
    """Keep the trajectories that came to the task's end, its own limit of turns included; see `Stop.is_cut`."""
    return _keep(groups, lambda trajectory, score: not trajectory.stop.is_cut)


def whole(groups: Sequence[Group]) -> list[Group]:
    """Keep the groups of which every trajectory has a score; a failure leaves out the others of its group, too.

    Those that failed may have been the longest or the hardest, without which the rest is no fair baseline.
    """
    return [group for group in groups if group.trajectories and len(group.scored) == len(group.trajectories)]


def most_uncertain(groups: Sequence[Group], share: float = 0.25) -> list[Group]:
    """Keep the `share` of groups (at least one) with the widest outcomes (StarPO-S, arXiv 2504.20073).

    The width is the standard deviation of the outcomes; of equal widths the earlier group is kept.
    """
    if not 0 < share <= 1:
        raise UsageError(f"share of groups to keep: got {share}; give a number above 0 and at most 1")
    count = max(1, round(share * len(groups)))
    ranked = sorted(range(len(groups)), key=lambda index: (-spread(groups[index]), index))
    return [groups[index] for index in sorted(ranked[:count])]


def token_hash(trajectory: Trajectory) -> bytes:
    """Return 16 bytes that name the tokens of `trajectory`, turn by turn, whatever its seed or group."""
    turns = [(turn.prompt_ids, turn.completion.token_ids, turn.starts_segment) for turn in trajectory.turns]
    return blake2b(repr((trajectory.task.id, turns)).encode(), digest_size=16).digest()


def _keep(groups: Sequence[Group], is_kept: Callable[[Trajectory, Score], bool]) -> list[Group]:
    return _without_empty(
        [
            replace(group, trajectories=tuple(t for t in group.scored if is_kept(t, _score(t))))
            for group in groups
        ]
    )


def _without_empty(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if group.trajectories]


def _score(trajectory: Trajectory) -> Score:
    assert isinstance(trajectory.outcome, Score), "scored trajectories have a Score"
    return trajectory.outcome


def spread(group: Group) -> float:
    """Return the standard deviation of the outcomes of `group`, 0 for fewer than two."""
    values = group.returns
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5


def _success_rate(group: Group) -> float:
    """Return the share of the scored trajectories of `group` that solved their task."""
    return sum(trajectory.is_success for trajectory in group.scored) / len(group.scored)
