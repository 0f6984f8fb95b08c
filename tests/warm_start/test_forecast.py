"""What a check says of the run that would follow."""

import re
from dataclasses import replace

import pytest
from tests.build import make_episode, make_turn

from quintain.learning.train_config import TrainConfig
from quintain.methods.imitation import sft
from quintain.methods.rl import grpo, ppo
from quintain.types import Group, Score, Task, Trajectory
from quintain.warm_start.forecast import Forecast, forecast

JOB = grpo.Config(environment="guess", steps=10, tasks=4, group_size=8, num_epochs=2)


def episode(task: Task, value: float) -> Trajectory:
    turn = make_turn(text="go")
    return make_episode(
        turn, task=task, outcome=Score(value=value, is_success=value >= 1), seed=1, group=task.id
    )


def groups(*values: tuple[float, ...]) -> list[Group]:
    tasks = [Task(id=str(number), environment="guess", seed=number) for number in range(len(values))]
    return [
        Group(task=task, trajectories=tuple(episode(task, value) for value in scores))
        for task, scores in zip(tasks, values, strict=True)
    ]


def told(
    config: TrainConfig, *values: tuple[float, ...], has_expert: bool = True, imitated: int = 48
) -> Forecast:
    return forecast(
        config, groups(*values), rollout_seconds=2.0, forward_seconds=0.5, has_expert=has_expert, imitated=imitated
    )  # fmt: skip


def test_time_is_that_of_all_episodes_played_and_learned_from() -> None:
    found = told(JOB, (0.0, 1.0), (0.5, 0.5))
    # 4 episodes took 2 s, and 0.5 s forward: two epochs of three such passes; 32 episodes are 8 times that.
    assert found.step_seconds == pytest.approx(8 * (2 + 2 * 3 * 0.5))
    assert found.total_seconds == pytest.approx(400)
    assert (found.num_episodes, found.num_solved, found.differing) == (4, 1, 0.5)
    assert found.metrics() == {
        "forecast/success": 0.25,
        "forecast/differing": 0.5,
        "forecast/step_seconds": 40.0,
    }
    assert str(found).splitlines() == [
        "success at the start  25% [5, 70] of 4 episodes",
        "groups that differ    50%",
        "a step takes about    40.0 s here, all of them 7 min, without evaluations",
        "suggestion            go on: there is something to learn from",
    ]


def test_what_a_step_plays() -> None:
    assert JOB.episodes_of_step == 32
    assert ppo.Config(environment="guess", episodes=12).episodes_of_step == 12
    assert sft.Config(environment="guess").episodes_of_step is None
    found = told(sft.Config(environment="guess"), (0.0, 1.0))
    assert found.step_seconds is None and "a step takes" not in str(found)
    assert "forecast/step_seconds" not in found.metrics()
    empty = told(JOB)
    assert (empty.step_seconds, empty.differing, empty.num_episodes) == (None, 0.0, 0)


@pytest.mark.parametrize(
    ("values", "asked", "has_expert", "words"),
    [
        (((1.0, 1.0),), 48, True, "take harder options"),
        (((0.0, 0.0),), 400, True, "only 48 of 400 demonstrations were imitated here"),
        (((0.0, 0.0),), 48, True, r"imitate more of the expert \(--demonstrations 192\)"),
        (((0.0, 0.0),), 48, False, "write expert_action"),
        (((0.0, 0.0),), "chats.jsonl", False, "write expert_action"),
        (((0.0, 0.2), *[(0.0, 0.0)] * 4), 48, True, "raise --group-size"),
    ],
)
def test_what_is_to_be_changed(
    values: tuple[tuple[float, ...], ...], asked: int | str, has_expert: bool, words: str
) -> None:
    found = told(replace(JOB, demonstrations=asked), *values, has_expert=has_expert)
    assert re.search(words, found.suggestion)
