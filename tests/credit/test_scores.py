"""Scores of a reward model in the place of rewards."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from quintain.credit.gae import gae_tokens
from quintain.credit.layout import Critic
from quintain.credit.scores import pay_scores, score_metrics
from quintain.errors import InvariantError
from quintain.types import Failure, Group, Score, Trajectory

Build = Callable[..., Trajectory]
GroupOf = Callable[..., Group]


def test_the_score_falls_on_the_last_sampled_token_and_prices_on_every_one(
    trajectory: Build, group: GroupOf
) -> None:
    given = group(trajectory([1.0, 5.0], tokens=[2, 1]), trajectory([2.0], tokens=[1]))
    (paid,) = pay_scores([given], [3.0, -1.0])
    one, other = paid.trajectories
    assert [turn.reward for turn in one.turns] == [0.0, 3.0] and [t.reward for t in other.turns] == [-1.0]
    assert isinstance(one.outcome, Score) and one.outcome.value == 3.0 and one.is_success
    zeros = [[np.zeros(2), np.zeros(1)], [np.zeros(1)]]
    prices = [[np.array([-0.5, 0.25]), np.array([-1.0])], [np.array([0.0])]]
    credit = gae_tokens([paid], Critic(values=zeros, token_rewards=prices), gae_lambda=1.0)
    assert [array.tolist() for array in credit.advantages[0]] == [[1.75, 2.25], [2.0]]


def test_proxy_and_gold_are_measured_of_the_same_episodes(
    trajectory: Build, group: GroupOf, failure: Failure
) -> None:
    broken = replace(trajectory([9.0]), outcome=failure)
    given = group(trajectory([1.0]), broken, trajectory([2.0]))
    paid = pay_scores([given], [3.0, -1.0])[0].trajectories
    assert paid[1] is broken and [turn.reward for turn in paid[2].turns] == [-1.0]
    assert score_metrics([given], [3.0, -1.0]) == {"reward_model/score": 1.0, "reward_model/gold": 1.5}
    assert score_metrics([], []) == {}


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")]])
def test_every_episode_has_a_finite_score(trajectory: Build, group: GroupOf, scores: list[float]) -> None:
    with pytest.raises(InvariantError, match="scores of 2 episodes: got"):
        pay_scores([group(trajectory([1.0]), trajectory([0.0]))], scores)
