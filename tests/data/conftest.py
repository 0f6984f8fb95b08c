"""Hand-made trajectories: turns are (prompt, completion) token ids, with what else a test needs by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from quintain.types import Action, Completion, Group, Outcome, Score, Stop, Task, Trajectory, Turn, as_content

Ids = tuple[int, ...]


def trajectory(
    turns: Sequence[tuple[Ids, Ids]],
    *,
    value: float = 1.0,
    segments: Sequence[int] = (),
    task: str = "t",
    group: str | None = None,
    logprobs: bool = True,
    outcome: Outcome | None = None,
) -> Trajectory:
    made = tuple(
        Turn(
            observation=as_content(f"observation {index}"),
            prompt_ids=prompt,
            completion=Completion(
                token_ids=ids, logprobs=tuple(-0.1 * i for i in ids) if logprobs else (), stop="stop"
            ),
            action=Action(),
            starts_segment=index in segments,
        )
        for index, (prompt, ids) in enumerate(turns)
    )
    return Trajectory(
        task=Task(id=task, environment="e", seed=0),
        turns=made,
        outcome=outcome or Score(value=value, is_success=value > 0),
        stop=Stop.TERMINATED,
        seed=0,
        group=group or task,
        index=0,
    )


@pytest.fixture(name="trajectory", scope="session")
def _trajectory() -> Callable[..., Trajectory]:  # pyright: ignore[reportUnusedFunction]
    return trajectory


@pytest.fixture
def group_of() -> Callable[..., Group]:
    return lambda *trajectories: Group(task=trajectories[0].task, trajectories=trajectories)


@pytest.fixture(name="episodes")
def _episodes() -> Callable[..., list[Trajectory]]:  # pyright: ignore[reportUnusedFunction]
    """Episodes of one task, of the given outcomes and numbers of turns, called by their place: t0, t1, …"""

    def build(
        values: Sequence[float], lengths: Sequence[int] | None = None, task: str = "t"
    ) -> list[Trajectory]:
        made: list[Trajectory] = []
        for index, (value, length) in enumerate(zip(values, lengths or [1] * len(values), strict=True)):
            turns = [((1,), (10 + index, 2)) for _ in range(length)]
            made.append(replace(trajectory(turns, value=value, task=task), index=index, id=f"{task}{index}"))
        return made

    return build
