"""Where a critic reads and is trained, and what of an episode is trained when its last turn is said anew."""

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from tests.build import make_episode, make_turn

from quintain.data.turn_values import last_turn_samples, turn_value_samples
from quintain.errors import InvariantError
from quintain.types import Completion, Trajectory, Turn


def turn(prompt: tuple[int, ...], said: tuple[int, ...], *, starts: bool = False) -> Turn:
    completion = Completion(token_ids=said, logprobs=(-0.5,) * len(said), stop="stop")
    return make_turn(prompt=prompt, completion=completion, starts_segment=starts)


def episode(*turns: Turn) -> Trajectory:
    return make_episode(*turns)


TWO = episode(turn((1, 2), (3, 4), starts=True), turn((5,), (6,)))


def test_v_is_read_before_a_turn_and_q_after_it() -> None:
    """Ids 1 2 | 3 4 | 5 | 6 | 0: V at 3 and 6, Q at 5 (what follows 4) and at the token that is put behind."""
    (sample,) = turn_value_samples([TWO])
    assert sample.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 0]
    assert sample.turn_id.tolist() == [-1, -1, 0, -1, 0, 1, 1]
    assert sample.turn_end.tolist() == [False, False, False, False, True, False, True]
    assert sample.loss_weight.tolist() == [0, 0, 1, 0, 1, 1, 1]


def test_targets_are_returns_and_unknown_ones_have_no_weight() -> None:
    (sample,) = turn_value_samples([TWO], before=[[0.1, nan]], after=[[0.3, nan]])
    assert sample.returns.tolist() == pytest.approx([0, 0, 0.1, 0, 0.3, 0, 0])
    assert sample.loss_weight.tolist() == [0, 0, 1, 0, 1, 0, 0]
    (only_q,) = turn_value_samples([TWO], after=[[0.3, 0.4]])
    assert only_q.loss_weight.tolist() == [0, 0, 0, 0, 1, 0, 1]
    assert only_q.returns.tolist() == pytest.approx([0, 0, 0, 0, 0.3, 0, 0.4])


def test_edges_of_streams() -> None:
    joined = episode(turn((1,), (2,), starts=True), turn((), (3,)))
    (sample,) = turn_value_samples([joined])
    assert sample.turn_id.tolist() == [-1, 0, 0, 1] and sample.turn_end.tolist() == [False, False, True, True]
    (full,) = turn_value_samples([TWO], max_length=6)
    assert len(full.token_ids) == 6 and full.turn_id.tolist() == [-1, -1, 0, -1, 0, 1]
    assert full.turn_end[5], "without room Q of the last turn stands in the place of V"
    apart = episode(turn((1,), (2,), starts=True), turn((4,), (5,), starts=True))
    assert [s.turn_id.max() for s in turn_value_samples([apart])] == [0, 1]
    assert turn_value_samples([]) == []
    with pytest.raises(InvariantError, match="values of turns: got an episode in which nothing was sampled"):
        turn_value_samples([TWO, replace(TWO, turns=(turn((1,), (), starts=True),))])


def test_only_the_last_turn_is_trained_and_its_end_token_with_it() -> None:
    """Equal turns that are one object are told apart by their place."""
    again = turn((5,), (6, 9))
    (sample,) = last_turn_samples([episode(turn((1, 2), (3, 4), starts=True), again, again)], [-0.5])
    assert sample.loss_weight.tolist() == [0] * 4 + [0] * 3 + [0, 1, 1]
    assert sample.turn_id.tolist() == [-1] * 8 + [2, 2]
    assert np.unique(sample.advantages[sample.loss_weight > 0]).tolist() == [-0.5]
    apart = episode(turn((1,), (2,), starts=True), turn((4,), (5,), starts=True))
    (only,) = last_turn_samples([apart], [1.0])
    assert only.token_ids.tolist() == [4, 5], "streams before it are left out"
