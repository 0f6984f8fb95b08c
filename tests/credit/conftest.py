"""Hand-made groups: a trajectory is its turn rewards, how many tokens each turn has, and how it stopped."""

from collections.abc import Callable, Sequence

import pytest
from tests.build import make_episode, make_turn

from quintain.types import Failure, Group, Outcome, Score, Stop, Trajectory

MakeTrajectory = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def trajectory(
    rewards: Sequence[float],
    *,
    task: str = "t",
    group: str | None = None,
    states: Sequence[str | None] | None = None,
    tokens: Sequence[int] | None = None,
    stop: Stop = Stop.TERMINATED,
    outcome: Outcome | None = None,
) -> Trajectory:
    counts = tokens or [2] * len(rewards)
    keys = states or [None] * len(rewards)
    turns = tuple(
        make_turn((7,) * n, reward=reward, state_key=key)
        for reward, n, key in zip(rewards, counts, keys, strict=True)
    )
    return make_episode(
        *turns,
        task=task,
        outcome=outcome or Score(value=sum(rewards), is_success=sum(rewards) > 0),
        stop=stop,
        group=group or task,
    )


def group(*trajectories: Trajectory) -> Group:
    return Group(task=trajectories[0].task, trajectories=trajectories)


FAILURE = Failure(owner="environment", kind="timeout", message="slow")


@pytest.fixture(name="trajectory")
def _trajectory() -> MakeTrajectory:  # pyright: ignore[reportUnusedFunction]
    return trajectory


@pytest.fixture(name="group")
def _group() -> MakeGroup:  # pyright: ignore[reportUnusedFunction]
    return group


@pytest.fixture
def outcomes() -> MakeGroup:
    """Return a function from outcomes to a group of single-turn trajectories."""
    return lambda *values: group(*(trajectory([value]) for value in values))


@pytest.fixture
def failure() -> Failure:
    return FAILURE
