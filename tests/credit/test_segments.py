"""Weights of segments, and a verifier of single answers, by value."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from quintain.credit.segments import segment_scores, segment_weights
from quintain.credit.verifier import Verifier, fit
from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.errors import DataError
from quintain.losses.imitation import imitate_weighted
from quintain.types import Completion, Group, Outputs, Trajectory, Turn

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def test_scores_are_discounted_and_over_the_largest() -> None:
    assert segment_scores([0, 0, 1]) == pytest.approx([0.9801, 0.99, 1])
    assert segment_scores([1, -4], 1.0) == pytest.approx([-0.75, -1])
    assert segment_scores([0, 0]) == [0, 0]
    assert segment_scores([]) == []
    assert segment_scores([0.2]) == [1]


def test_the_loss_of_two_segments_by_hand(trajectory: Make, group: MakeGroup) -> None:
    """Log-probs -1, -3 and -2, scores 1 and .5: (1·2 + .5·2)/2 = 1.5."""
    credit = segment_weights([group(trajectory([0, 0], tokens=[2, 1]))], [[0.5, 0.5]], discount=1.0)
    batch = pack(samples_from(credit), aggregation="constant", constant=1.0)
    logprobs = torch.zeros(len(batch.token_ids))
    logprobs[batch.turn_id >= 0] = torch.tensor([-1.0, -3.0, -2.0])
    report = imitate_weighted()(Outputs(logprobs=logprobs, entropy=torch.zeros_like(logprobs)), batch)
    assert float(report.loss) == pytest.approx(1.5)


def test_every_turn_needs_a_process_reward(trajectory: Make, group: MakeGroup) -> None:
    with pytest.raises(
        DataError, match=r"process rewards: got \[1\] by trajectory; give one to each turn, \[2\]"
    ):
        segment_weights([group(trajectory([0, 0]))], [[1.0]])


def test_the_fit_is_the_minimum_of_the_pair_loss() -> None:
    weights = fit(np.array([[1.0, 0.0], [0.0, -1.0]]), 0.01, 4000)
    chance = 1 / (1 + np.exp(weights[0]))
    assert weights[0] == pytest.approx(-weights[1])
    assert chance / 2 == pytest.approx(2 * 0.01 * weights[0], abs=1e-6)


def saying(trajectory: Make, token: int, *, is_right: bool, task: str = "t") -> Trajectory:
    base = trajectory([float(is_right)], task=task)
    completion = Completion(token_ids=(token, 9), logprobs=(), stop="stop")
    return replace(base, turns=(replace(base.turns[0], completion=completion),))


def is_right(trajectory: Trajectory, number: int) -> bool:
    return trajectory.turns[number].reward > 0


def test_what_was_right_scores_higher(trajectory: Make, group: MakeGroup) -> None:
    verifier = Verifier(is_right)
    good = saying(trajectory, 1, is_right=True)
    bad = [saying(trajectory, token, is_right=False) for token in (2, 3)]

    def score(t: Trajectory) -> float:
        turn: Turn = t.turns[0]
        return verifier.score(turn)

    assert score(good) == 0
    verifier.update([group(good, *bad)])
    assert score(good) > 0.5 > 0 > max(map(score, bad))


def test_only_answers_to_one_task_are_paired(trajectory: Make, group: MakeGroup) -> None:
    verifier = Verifier(is_right)
    easy = group(saying(trajectory, 1, is_right=True, task="easy"))
    hard = group(saying(trajectory, 2, is_right=False, task="hard"))
    verifier.update([easy, hard])
    assert verifier.score(easy.trajectories[0].turns[0]) == 0
