"""Evaluations say how often each tool was called; a step says how far luck moves its reward."""

from dataclasses import replace
from math import sqrt

import pytest
from tests.build import make_episode, make_turn

from quintain.environments.protocol import tool_action
from quintain.runs.report import evaluation_metrics, rollout_metrics
from quintain.types import Failure, Group, Score, Stop, Task, Trajectory


def episode(*names: str) -> Trajectory:
    turns = tuple(make_turn((1,), prompt=(7,), action=tool_action(name)) for name in names)
    return make_episode(*turns, group="t")


def test_calls_of_each_tool_are_counted_in_scored_episodes() -> None:
    broken = Failure(owner="environment", kind="died", message="gone")
    failed = replace(episode("search"), outcome=broken, stop=Stop.FAILURE)
    found = evaluation_metrics(
        [episode("search", "search", "answer"), episode("answer"), failed], ("search", "look")
    )
    assert {name: value for name, value in found.items() if name.startswith("eval/calls/")} == {
        "eval/calls/search": 1.0,
        "eval/calls/look": 0.0,
    }
    assert not [name for name in evaluation_metrics([episode("search")]) if name.startswith("eval/calls/")]


@pytest.mark.parametrize(
    ("tasks", "error"),
    [
        ([[1.0]], None),
        ([[1.0, 0.0]], 0.5),
        ([[1.0, 1.0], [0.0, 0.0]], 0.5),
        ([[1.0, 0.0], [0.0, 1.0]], 0.0),
        ([[1.0], [0.0], [0.0], [1.0]], sqrt(1 / 12)),
    ],
)
def test_the_error_of_a_reward_is_that_of_tasks_or_of_one_task_of_episodes(
    tasks: list[list[float]], error: float | None
) -> None:
    groups = [
        Group(
            task=Task(id=str(number), environment="e", seed=number),
            trajectories=tuple(
                replace(
                    episode("answer"),
                    task=Task(id=str(number), environment="e", seed=number),
                    group=str(number),
                    index=index,
                    outcome=Score(value=value, is_success=value > 0),
                )
                for index, value in enumerate(values)
            ),
        )
        for number, values in enumerate(tasks)
    ]
    assert rollout_metrics(groups).get("train/reward_error") == (
        None if error is None else pytest.approx(error)
    )


def test_the_environment_that_is_solved_least_has_a_number_of_its_own() -> None:
    def of(name: str, value: float) -> Trajectory:
        task = Task(id=name, environment=name, seed=0)
        return replace(episode("answer"), task=task, outcome=Score(value=value, is_success=value > 0))

    found = evaluation_metrics([of("a", 1.0), of("a", 1.0), of("b", 9.0), of("b", 0.0), of("c", 1.0)])
    assert (found["eval/success"], found["eval/worst_success"]) == (0.8, 0.5)
    assert "eval/worst_success" not in evaluation_metrics([of("a", 1.0)])
