"""How far weights have moved on since an episode was sampled, and what becomes of one that is too old."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from quintain.rollout.failures import STALE
from quintain.types import Completion, Failure, Stop, Trajectory


def versions_of(completion: Completion) -> Iterator[int]:
    """Yield the versions of the weights that tokens of `completion` were sampled with."""
    if not completion.version_spans:
        yield completion.policy_version
    for _, version in completion.version_spans:
        yield version


def oldest_versions(trajectory: Trajectory) -> dict[str, int]:
    """Return policy -> oldest version of its weights that a token of `trajectory` was sampled with."""
    oldest: dict[str, int] = {}
    for turn in trajectory.turns:
        first = min(versions_of(turn.completion))
        oldest[turn.completion.policy] = min(first, oldest.get(turn.completion.policy, first))
    return oldest


def newest_versions(trajectory: Trajectory) -> dict[str, int]:
    """Return policy -> newest version of its weights that a token of `trajectory` was sampled with."""
    newest: dict[str, int] = {}
    for turn in trajectory.turns:
        last = max(versions_of(turn.completion))
        newest[turn.completion.policy] = max(last, newest.get(turn.completion.policy, last))
    return newest


def staleness(oldest: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Return how many versions a policy has moved on from `oldest` to `now`; the most of all, 0 for none."""
    return max((now[policy] - version for policy, version in oldest.items()), default=0)


def judge_age(trajectory: Trajectory, age: int, most: int) -> Trajectory:
    """Return `trajectory`; where it is more than `most` versions old, as a failure of kind ``stale``."""
    if age <= most or isinstance(trajectory.outcome, Failure):
        return trajectory
    message = f"sampled with weights {age} versions old, {most} are allowed; raise max_staleness to keep it"
    failure = Failure(owner="engine", kind=STALE, message=message)
    return replace(trajectory, outcome=failure, stop=Stop.FAILURE)
