"""Turns and episodes as they are recorded, made of plain numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn

TASK = Task(id="t", environment="e", seed=0)
SILENT = Action()


def turn_of(said: Sequence[int] = (2,), action: Action = SILENT, **fields: Any) -> Turn:
    """Return a turn that sampled the tokens `said` after a prompt of one; `fields` are those of `Turn`."""
    completion = Completion(token_ids=tuple(said), logprobs=(-0.5,) * len(said), stop="stop")
    given: dict[str, Any] = {"observation": (), "prompt_ids": (1,), **fields}
    return Turn(completion=completion, action=action, **given)


def episode_of(
    turns: Iterable[Turn], value: float = 0.0, *, is_success: bool = False, **fields: Any
) -> Trajectory:
    """Return the episode of `turns`, which came to `value`; `fields` are those of `Trajectory`."""
    given: dict[str, Any] = {
        "task": TASK,
        "outcome": Score(value=value, is_success=is_success),
        "stop": Stop.TERMINATED,
        "seed": 0,
        "group": "g",
        "index": 0,
        **fields,
    }
    return Trajectory(turns=tuple(turns), **given)
