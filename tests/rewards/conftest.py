"""Hand-made episodes: what each turn did, and the outcome."""

from collections.abc import Callable, Sequence

import pytest
from tests.build import make_episode, make_turn

from quintain.types import Action, Outcome, Score, Task, ToolCall, Trajectory, Turn


def turn(
    *,
    reward: float = 0.0,
    text: str = "",
    error: str | None = None,
    is_valid: bool = True,
    state: str | None = None,
    calls: int = 0,
    tokens: int = 2,
    seat: str = "agent",
) -> Turn:
    return make_turn(
        (5,) * tokens,
        logprob=None,
        action=Action(text=text, error=error, tool_calls=(ToolCall(name="look"),) * calls),
        seat=seat,
        reward=reward,
        reward_terms={"own": reward},
        is_valid=is_valid,
        state_key=state,
    )


def episode(
    turns: Sequence[Turn], *, outcome: Outcome | None = None, answers: Sequence[str] = ("x",)
) -> Trajectory:
    return make_episode(
        *turns,
        task=Task(id="t", environment="e", seed=0, data={"answers": answers}),
        outcome=outcome or Score(value=sum(t.reward for t in turns), is_success=False),
    )


@pytest.fixture(name="turn")
def _turn() -> Callable[..., Turn]:  # pyright: ignore[reportUnusedFunction]
    return turn


@pytest.fixture(name="episode")
def _episode() -> Callable[..., Trajectory]:  # pyright: ignore[reportUnusedFunction]
    return episode
