"""A table over what is seen, not over states: games in Python whose tasks share the rows of one table.

A row stands for everything that looks the same to the policy, in whatever task it is met, so what is learned on
training tasks is what is done on held-out ones. Nothing is exact here: numbers are means over played episodes. Episodes
of equal `seed` have common random numbers, those of sampling and those that the game is given (`luck`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quintain.errors import UsageError
from quintain.types import (
    NOTHING,
    Action,
    Completion,
    Group,
    Score,
    Stop,
    Task,
    Text,
    ToolCall,
    Trajectory,
    Turn,
    derive_seed,
)
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.tabular import TablePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What a move led to: ``Moved(reward=1.0, is_over=True, is_success=True)``."""

    reward: float = 0.0
    terms: Mapping[str, float] = NOTHING
    calls: tuple[ToolCall, ...] = ()
    """tools that the move called"""
    is_over: bool = False
    is_success: bool = False


class Game(Protocol):
    """An episode under way."""

    def row(self) -> int:
        """Return the row of the table for what is seen now."""
        ...

    def key(self) -> str:
        """Return the name of the state."""
        ...

    def act(self, column: int, luck: float) -> Moved:
        """Make the move of `column`; `luck`, even over [0, 1), decides what is left to chance."""
        ...


def observed_world(num_rows: int, actions: Sequence[str], tasks: Sequence[Task], *, horizon: int) -> World:
    """Return the rows and columns of a table over what is seen; where moves lead is the games' to say."""
    shape = (num_rows, len(actions))
    return World(
        tasks=tuple(tasks),
        actions=tuple(actions),
        horizon=horizon,
        start=np.zeros(len(tasks), np.int64),
        next=np.full(shape, END, np.int64),
        reward=np.zeros(shape),
        is_legal=np.ones(shape, np.bool_),
        is_success=np.zeros(shape, np.bool_),
        task_of=np.zeros(num_rows, np.int64),
        keys=tuple(f"seen {row}" for row in range(num_rows)),
        expert=np.full(num_rows, END, np.int64),
        distance=np.full(num_rows, np.nan),
    )


def play_games(
    policy: TablePolicy,
    make: Callable[[Task], Game],
    tasks: Sequence[Task],
    *,
    size: int,
    seed: int,
) -> list[Group]:
    """Return `size` episodes of each of `tasks`, each a group; the horizon of the policy's world ends them."""
    if size < 1 or not tasks:
        raise UsageError(f"episodes: got {size} of each of {len(tasks)} tasks; give 1 or more of each")
    logs = policy.logs().detach().numpy()
    sums = np.exp(logs.astype(np.float64)).cumsum(1)
    rng = np.random.default_rng(seed)
    draws = rng.random((len(tasks) * size, policy.world.horizon, 2))
    first = derive_seed("games", seed)
    known: dict[object, Turn] = {}
    groups: list[Group] = []
    for place, task in enumerate(tasks):
        name = f"{place}:{task.id}"
        members: list[Trajectory] = []
        for index in range(size):
            number = place * size + index
            turns, is_success = _played(policy.world, logs, sums, make(task), draws[number], known)
            members.append(
                Trajectory(
                    task=task,
                    turns=turns,
                    outcome=Score(value=float(sum(turn.reward for turn in turns)), is_success=is_success),
                    stop=Stop.TERMINATED,
                    seed=first + number,
                    group=name,
                    index=index,
                )
            )
        groups.append(Group(task=task, trajectories=tuple(members)))
    return groups


def _played(
    world: World,
    logs: NDArray[np.float32],
    sums: NDArray[np.float64],
    game: Game,
    draws: NDArray[np.float64],
    known: dict[object, Turn],
) -> tuple[tuple[Turn, ...], bool]:
    """Return the turns of an episode and whether it solved its task; equal turns are one object."""
    turns: list[Turn] = []
    for uniform, luck in draws.tolist():
        row, key = game.row(), game.key()
        column = min(
            int(np.searchsorted(sums[row], uniform * sums[row, -1], side="right")), len(sums[row]) - 1
        )
        moved = game.act(column, luck)
        seen = (row, key, column, not turns, moved.reward, *moved.terms.items(), moved.calls != ())
        turn = known.get(seen)
        if turn is None:
            turn = known[seen] = Turn(
                observation=(Text(text=world.keys[row]),),
                prompt_ids=(row,),
                completion=Completion(
                    token_ids=(world.num_states + column,), logprobs=(float(logs[row, column]),), stop="stop"
                ),
                action=Action(text=world.actions[column], tool_calls=moved.calls),
                reward=moved.reward,
                reward_terms=dict(moved.terms),
                state_key=key,
                starts_segment=not turns,
            )
        turns.append(turn)
        if moved.is_over:
            return tuple(turns), moved.is_success
    return tuple(turns), False
