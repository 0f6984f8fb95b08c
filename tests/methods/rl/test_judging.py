"""What reward terms came to is in the curve by name, and what they could not say is counted."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_group
from tests.methods.rl.test_family import episode

from quintain.credit.group import group_relative
from quintain.errors import FailureRateError
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.loops.statistics import measure_rewards
from quintain.methods.method import sample_groups
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import Term, apply_all
from quintain.types import Failure, Trajectory

Rows = Callable[[Path], list[dict[str, Any]]]


def odd(*, share: float) -> Term:
    """A term that pays 2, and is no number for the first `share` of the episodes it is asked about."""
    asked: list[Trajectory] = []

    def measure(trajectory: Trajectory) -> float:
        asked.append(trajectory)
        return float("nan") if len(asked) <= share * 20 else 2.0

    return Term(name="odd", measure=measure, weight=0.5)


def test_terms_are_means_over_episodes_and_failures_are_shares() -> None:
    lost = episode(0, outcome=Failure(owner="engine", kind="k", message="m"))
    before = [make_group(*(episode(1) for _ in range(15))), make_group(*(episode(0) for _ in range(4)), lost)]
    after = apply_all(before, (environment_reward(), odd(share=0.05)))
    assert measure_rewards(before, after, most=0.05) == {
        "reward/environment": pytest.approx(14 / 18),
        "reward/odd": 1.0,
        "reward/failed": 0.05,
    }
    assert measure_rewards(before, before, most=0.0) == {}
    assert measure_rewards([], [*()], most=0.0) == {"reward/failed": 0.0}
    with pytest.raises(
        FailureRateError, match=r"20 episodes: got 2 failures, more than 5%; the first, by the judge"
    ):
        measure_rewards(before, apply_all(before, (odd(share=0.1),)), most=0.05)


def test_a_reward_that_is_no_number_never_trains_and_too_many_stop_the_run(runner: Any, rows: Rows) -> None:
    def told(share: float, name: str) -> Path:
        method = OnPolicy(
            collect=sample_groups(4, 5),
            reward=partial(apply_all, terms=(environment_reward(), odd(share=share))),
            credit=lambda groups, _: group_relative(groups),
            update=Update(loss=clip_ratio()),
        )
        return runner.train_method(method, runner.config("grpo", steps=1), name)

    last = rows(told(0.05, "one"))[-1]
    assert (last["credit/trajectories"], last["reward/failed"], last["reward/odd"]) == (19, 0.05, 1.0)
    assert last["train/failures"] == 0
    with pytest.raises(FailureRateError, match="reward term odd: got"):
        told(0.5, "many")
