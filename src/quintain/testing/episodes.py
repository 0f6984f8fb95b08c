"""Turns and episodes as they are recorded, made of plain numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """An episode in plain numbers."""

    task: int
    value: float
    is_success: bool
    num_turns: int


def record_cases(case: Sequence[Lived]) -> list[Group]:
    """Return the episodes as they are recorded: a group for each task, in order; `seed` is the place in `case`.

    Each says a token of its own, so that no two are the same.
    """
    groups: list[Group] = []
    for number in sorted({lived.task for lived in case}):
        task = Task(id=f"t{number}", environment="e", seed=number)
        members = [(place, lived) for place, lived in enumerate(case) if lived.task == number]
        told = tuple(
            episode_of(
                [turn_of((place + 2,))] * lived.num_turns,
                lived.value,
                is_success=lived.is_success,
                task=task,
                seed=place,
                group=task.id,
                index=index,
            )
            for index, (place, lived) in enumerate(members)
        )
        groups.append(Group(task=task, trajectories=told))
    return groups
