"""Trajectories with tokens that a small word list decodes, and rows of a curve."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from quintain.types import Action, Completion, Outcome, Score, Stop, Task, Trajectory, Turn, as_content

WORDS = [
    "<|user|>",
    "red ball",
    "<|assistant|>",
    "left",
    "<|end|>",
    "<script>alert(1)</script>",
    "\x1b[31m\u202eévil",
]


def decode(ids: Sequence[int]) -> str:
    return "".join(WORDS[i] for i in ids)


def trajectory(
    outcome: Outcome | None = None,
    *,
    prompt: tuple[int, ...] = (0, 1, 2),
    sampled: tuple[int, ...] = (3, 4),
    logprobs: tuple[float, ...] = (-0.01, -5.0),
    turns: int = 1,
    index: int = 0,
    **turn: Any,
) -> Trajectory:
    fields: dict[str, Any] = {"observation": as_content("red ball"), "action": Action(text="left"), **turn}
    completion = Completion(token_ids=sampled, logprobs=logprobs, stop="stop")
    return Trajectory(
        task=Task(id="guess/train/7", environment="guess", seed=7),
        turns=(Turn(prompt_ids=prompt, completion=completion, **fields),) * turns,
        outcome=outcome or Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED,
        seed=index,
        group="g",
        index=index,
    )


@pytest.fixture
def make() -> Callable[..., Trajectory]:
    return trajectory


@pytest.fixture(name="decode")
def _decode() -> Callable[[Sequence[int]], str]:  # pyright: ignore[reportUnusedFunction]
    return decode


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """Ten steps of training and two evaluations, from 10 % to 90 %."""
    found: list[dict[str, Any]] = [
        {"step": step, "phase": "train", "train/success": step / 10} for step in range(11)
    ]
    found[0] |= {"eval/success": 0.1, "eval/low": 0.05, "eval/high": 0.2}
    found[10] |= {"eval/success": 0.9, "eval/low": 0.8, "eval/high": 0.95, "time/seconds": 90.0}
    return found
