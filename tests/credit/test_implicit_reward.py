"""Scores out of log-ratios, and which way they are fitted."""

import numpy as np
import pytest

from quintain.credit.implicit_reward import fit_outcomes, score_turns
from quintain.errors import DataError
from quintain.testing.episodes import episode_of, turn_of


def test_a_score_is_the_mean_log_ratio_of_a_turn() -> None:
    own, reference = [[np.array([-1.0, -1.0]), np.zeros(0)]], [[np.array([-2.0, -4.0]), np.zeros(0)]]
    assert score_turns(own, reference, beta=0.5) == [[1.0, 0.0]]


def test_weights_point_to_what_succeeded() -> None:
    episodes = [episode_of([turn_of((2, 3))], is_success=won) for won in (True, False)]
    level = [[np.array([-1.0, -1.0])]] * 2
    found = fit_outcomes(episodes, level, level)
    assert [list(turns[0]) for turns in found.advantages] == [[0.25, 0.25], [-0.25, -0.25]]
    assert found.metrics["implicit/cross_entropy"] == pytest.approx(np.log(2))


def test_a_model_that_knows_is_moved_less() -> None:
    (episode,) = [episode_of([turn_of((2,)), turn_of((3, 4))], is_success=True)]
    own, reference = [[np.array([0.0]), np.array([0.0, 0.0])]], [[np.array([-1.0]), np.array([-2.0, -2.0])]]
    found = fit_outcomes([episode], own, reference)
    miss = 1 - 1 / (1 + np.exp(-3.0))
    assert found.advantages[0][0][0] == pytest.approx(miss) and found.advantages[0][1][0] == pytest.approx(
        miss / 2
    )
    assert found.metrics["implicit/cross_entropy"] == pytest.approx(np.log1p(np.exp(-3.0)))


def test_what_does_not_fit_and_nothing() -> None:
    with pytest.raises(DataError, match="log-probs per sampled token"):
        fit_outcomes([episode_of([turn_of((2, 3))])], [[np.zeros(1)]], [[np.zeros(1)]])
    assert fit_outcomes([], [], []).metrics["implicit/cross_entropy"] == 0.0
