"""What the methods share: refusals, signals of collapse, shares by task, limits by step."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from quintain.credit.outcome import outcome_return
from quintain.errors import ConfigError
from quintain.recipes.names import recipe_module
from quintain.recipes.rl.by_task import by_task
from quintain.recipes.rl.collapse import has_collapsed, signals
from quintain.recipes.rl.collecting import within_turns
from quintain.recipes.rl.loop_ppo import bounds
from quintain.recipes.work import Work
from quintain.rollout.collect import Limits
from quintain.types import Action, Completion, Failure, Group, Outcome, Score, Stop, Task, Trajectory, Turn


def episode(value: float, *, kind: str = "e", tokens: int = 2, outcome: Outcome | None = None) -> Trajectory:
    turn = Turn(
        observation=(),
        prompt_ids=(1,),
        completion=Completion(token_ids=(int(value * 10),) * tokens, logprobs=(-0.5,) * tokens, stop="stop"),
        action=Action(),
        reward=value,
    )
    return Trajectory(
        task=Task(id=kind, environment=kind, seed=0),
        turns=(turn,),
        outcome=outcome or Score(value=value, is_success=value > 0),
        stop=Stop.TERMINATED,
        seed=0,
        group=kind,
        index=0,
    )


def group(*episodes: Trajectory) -> Group:
    return Group(task=episodes[0].task, trajectories=episodes)


@pytest.mark.parametrize(
    ("recipe", "fields", "message"),
    [
        (
            "grpo",
            {"group_size": 1},
            "group_size: got 1, and an episode alone has nothing to be compared with",
        ),
        ("grpo", {"tasks": 0}, "tasks: got 0; give 1 or more"),
        ("gspo", {"updates": 1}, "updates: got 1, with which every ratio is 1"),
        ("cispo", {"updates": 1}, "updates: got 1, with which every ratio is 1"),
        ("dapo", {"attempts": 0}, "attempts: got 0; give 1 or more"),
        ("dr_grpo", {"constant": 0.0}, "constant: got 0.0; give the tokens of a usual episode"),
        ("loop", {"clip": 0.0}, "clip, updates: got 0.0, 2"),
    ],
)
def test_settings_that_leave_nothing_to_learn_are_refused(
    recipe: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe_module(recipe).Config(**fields).check()


def test_what_the_environment_lacks_is_refused_at_the_start(runner: Any) -> None:
    plain = runner.config("grpo").environment.replace("Corridor", "Plain")
    with pytest.raises(ConfigError, match=r"got one without state keys.*give it a method state_key\(\)"):
        runner.train("gigpo", environment=plain)
    with pytest.raises(ConfigError, match="episodes without a reward before their last turn"):
        runner.train("mt_grpo", environment=plain, executed=0.0)


def test_the_clip_of_loop_is_symmetric_in_the_logarithm() -> None:
    low, high = bounds(0.1)
    assert (1 - low, 1 + high) == (pytest.approx(0.909090909), 1.1)
    assert np.log(1 - low) == pytest.approx(-np.log(1 + high))


def test_collapse_is_seen_in_three_numbers() -> None:
    found = signals([group(episode(1), episode(0)), group(episode(1, kind="f"), episode(1, kind="f"))])
    assert found == {"collapse/reward_std": 0.25, "collapse/repetition": 0.5}
    assert signals([]) == {"collapse/reward_std": 0.0, "collapse/repetition": 0.0}
    healthy = {"collapse/reward_std": 0.4, "policy/entropy": 1.0, "train/success": 0.5}
    echo = {"collapse/reward_std": 0.05, "policy/entropy": 0.1, "train/success": 0.4}
    assert has_collapsed([healthy] * 5 + [echo] * 5)
    assert not has_collapsed([healthy] * 5 + [echo] * 4)
    assert not has_collapsed([healthy] * 10)
    assert not has_collapsed([healthy] * 5 + [{**echo, "train/success": 0.9}] * 5)


def test_a_mixed_step_says_what_each_kind_of_task_contributes() -> None:
    groups = [
        group(episode(1, kind="a"), episode(0, kind="a")),
        group(episode(-10, kind="b"), episode(10, kind="b", tokens=1)),
        group(episode(0, kind="c", outcome=Failure(owner="engine", kind="k", message="m"))),
    ]
    found = by_task(groups, outcome_return(groups))
    assert found["task/a/success"] == 0.5
    assert (found["task/a/reward"], found["task/a/reward_std"]) == (0.5, 0.5)
    assert (found["task/b/reward"], found["task/b/reward_std"]) == (0, 10)
    assert found["task/a/gradient_share"] == pytest.approx(2 / 32)
    assert found["task/b/gradient_share"] == pytest.approx(30 / 32)
    assert not any("/c/" in name for name in found)
    assert by_task(groups[:1], outcome_return(groups[:1])) == {}


def test_a_limit_by_step_is_taken_back_even_after_an_error() -> None:
    rollout = SimpleNamespace(limits=Limits())
    work = cast(Work, SimpleNamespace(rollout=rollout))
    seen: list[int | None] = []

    def collect(_: Work, step: int) -> list[Group]:
        seen.append(rollout.limits.max_turns)
        if step == 9:
            raise ValueError
        return []

    limited: Callable[[Work, int], list[Group]] = within_turns(collect, lambda step: step + 1)
    assert limited(work, 2) == []
    with pytest.raises(ValueError):
        limited(work, 9)
    assert seen == [3, 10]
    assert rollout.limits == Limits()
