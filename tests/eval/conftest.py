"""Episodes for the tests of this room."""

from collections.abc import Callable

import pytest

from quintain.types import Action, Completion, Failure, Outcome, Score, Stop, Task, Trajectory, Turn


def make_episode(name: str, outcome: Outcome | bool, turns: int = 1, tokens: int = 2) -> Trajectory:
    """Return an episode of task `name` with `turns` turns of `tokens` tokens each."""
    if isinstance(outcome, bool):
        outcome = Score(value=float(outcome), is_success=outcome)
    turn = Turn(
        observation=(),
        prompt_ids=(1,),
        completion=Completion(token_ids=(2,) * tokens, logprobs=(-0.5,) * tokens, stop="stop"),
        action=Action(),
    )
    return Trajectory(
        task=Task(id=name, environment="w", seed=1, split="eval"),
        turns=(turn,) * turns,
        outcome=outcome,
        stop=Stop.FAILURE if isinstance(outcome, Failure) else Stop.TERMINATED,
        seed=1,
        group=name,
        index=0,
    )


@pytest.fixture
def episode() -> Callable[..., Trajectory]:
    return make_episode


@pytest.fixture
def broken() -> Failure:
    return Failure(owner="environment", kind="timeout", message="step took longer than 30 s")
