"""Games over a table of what is seen: common random numbers, ends, and shared rows."""

import pytest
import torch

from quintain.errors import UsageError
from quintain.types import Task, ToolCall
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy

TASKS = [Task(id=str(k), environment="count", seed=k) for k in range(3)]


class Count:
    """Say "on" until "stop"; luck below a half wins."""

    def __init__(self, task: Task) -> None:
        self.number = 0

    def row(self) -> int:
        return min(self.number, 1)

    def key(self) -> str:
        return str(self.number)

    def act(self, column: int, luck: float) -> Moved:
        self.number += 1
        calls = (ToolCall(name="on"),) if column == 0 else ()
        won = column == 1 and luck < 0.5
        return Moved(
            reward=float(won), terms={"luck": luck}, calls=calls, is_over=column == 1, is_success=won
        )


def test_episodes_end_by_the_game_or_the_horizon() -> None:
    world = observed_world(2, ["on", "stop"], TASKS, horizon=4)
    goes_on = TablePolicy(world, torch.tensor([[20.0, 0.0], [20.0, 0.0]]))
    (first, *_) = groups = play_games(goes_on, Count, TASKS, size=2, seed=5)
    assert [len(g.trajectories) for g in groups] == [2, 2, 2]
    assert [turn.state_key for turn in first.trajectories[0].turns] == ["0", "1", "2", "3"]
    assert [turn.prompt_ids for turn in first.trajectories[0].turns] == [(0,), (1,), (1,), (1,)]
    assert first.trajectories[0].turns[0].starts_segment and not first.trajectories[0].turns[1].starts_segment
    assert not first.trajectories[0].is_success
    stops = play_games(
        TablePolicy(world, torch.tensor([[0.0, 20.0], [0.0, 20.0]])), Count, TASKS, size=2, seed=5
    )
    own, other = first.trajectories[0].turns[0], stops[0].trajectories[0].turns[0]
    assert own.reward_terms == other.reward_terms, "the same luck for both"
    assert stops[0].trajectories[0].is_success == (other.reward_terms["luck"] < 0.5)
    assert own.action.tool_calls and not other.action.tool_calls
    assert play_games(goes_on, Count, TASKS, size=2, seed=5) == groups


def test_nothing_to_play_is_refused() -> None:
    world = observed_world(2, ["on", "stop"], TASKS, horizon=4)
    policy = TablePolicy(world, torch.zeros(2, 2))
    with pytest.raises(UsageError, match="episodes: got 1 of each of 0 tasks"):
        play_games(policy, Count, [], size=1, seed=0)
