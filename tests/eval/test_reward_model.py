"""Agreement, calibration, length and disagreement of reward models, by hand."""

from math import log

import pytest

from quintain.errors import DataError, ModelError
from quintain.eval.reward_model import (
    agreement,
    best_of,
    by_dispute,
    calibration_error,
    disagreement,
    ensemble_rewards,
    length_correlation,
    refuse_constant,
)
from quintain.types import Comparison, Score, Stop, Task, Trajectory

ANSWER = Trajectory(
    task=Task(id="t", environment="e", seed=0), turns=(), outcome=Score(value=0.0, is_success=False),
    stop=Stop.TERMINATED, seed=0, group="g", index=0,
)  # fmt: skip


def ranked(*ranks: float) -> Comparison:
    return Comparison(answers=(ANSWER,) * len(ranks), ranks=ranks)


def test_agreement_counts_pairs_and_halves_of_equal_scores() -> None:
    assert agreement([[2.0, 1.0, 0.0]], [ranked(2, 0, 1)]) == pytest.approx(2 / 3)
    assert agreement([[1.0, 1.0], [0.0, 5.0]], [ranked(1, 0), ranked(0, 0)]) == 0.5
    with pytest.raises(DataError, match="nothing but ties"):
        agreement([[1.0, 0.0]], [ranked(0, 0)])


def test_calibration_is_how_far_the_sureness_is_from_the_share_that_came_so() -> None:
    gap = log(9)  # P = .9
    scores = [[gap, 0.0], [gap, 0.0], [0.0, gap]]
    assert calibration_error(scores, [ranked(1, 0), ranked(0, 1), ranked(0, 1)]) == pytest.approx(0.9 - 2 / 3)
    assert calibration_error([[0.0, 0.0]] * 2, [ranked(1, 0), ranked(0, 1)]) == 0.0


def test_a_liking_for_length() -> None:
    assert length_correlation([1.0, 2.0, 3.0], [10, 20, 30]) == pytest.approx(1.0)
    assert length_correlation([1.0, 2.0], [5, 5]) == length_correlation([1.0], [5]) == 0.0


def test_members_disagree_by_their_variance_and_are_normalised_before_their_mean() -> None:
    assert disagreement([[1.0, 0.0], [3.0, 0.0]]) == [1.0, 0.0]
    assert ensemble_rewards([[3.0]], [[0.0, 2.0]]) == [2.0]
    assert ensemble_rewards([[0.0, 10.0], [1.0, 0.0]], [[0.0, 10.0], [1.0, 0.0]]) == [0.0, 0.0]
    assert ensemble_rewards([[0.0, 10.0], [7.0, 9.0]], [[0.0, 10.0], [5.0, 5.0]]) == [-1.0, 1.0]
    assert by_dispute([[0.0, 40.0, 1.0], [0.0, 50.0, -1.0]]) == [2, 0, 1], "both are sure of the second"
    with pytest.raises(DataError, match=r"scores of compared turns: got the shape \(1, 0\)"):
        ensemble_rewards([[1.0]], [[]])
    with pytest.raises(DataError, match="cannot disagree"):
        disagreement([[1.0]])


def test_the_first_of_the_highest_scores_is_picked() -> None:
    picks = best_of([[0.0, 1.0, 0.5], [2.0, 0.0]], [[0.1, 0.7, 0.7], [0.0, 0.0]])
    assert (picks.picked, picks.mean, picks.oracle) == (1.5, 0.75, 1.5) and picks.share == 1.0
    alone = best_of([[0.0], [1.0]], [[9.0], [-9.0]])
    assert alone.picked == alone.mean == alone.oracle == 0.5 and alone.share == 0.0
    with pytest.raises(DataError, match="answers to pick from: got 1 tasks"):
        best_of([[]], [[]])


def test_a_constant_reward_model_is_refused() -> None:
    refuse_constant([1.0, 1.1], of="reward model")
    refuse_constant([1.0], of="reward model")
    with pytest.raises(ModelError, match="reward model: got the score 1 for all of 2 different answers"):
        refuse_constant([1.0, 1.0], of="reward model")
