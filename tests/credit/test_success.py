"""Credit by a classifier of success: the fixtures of DigiRL and WebRL by hand, ties of a share, a window of chances."""

from dataclasses import replace

import numpy as np
import pytest
from tests.build import make_episode, make_turn

from quintain.credit.discounted import returns_to_go
from quintain.credit.selection import in_window, top_share
from quintain.credit.success import (
    ValuedEpisode,
    attach_values,
    chances,
    digirl_advantages,
    doubly_robust,
    labels,
    webrl_advantages,
)
from quintain.errors import DataError, UsageError
from quintain.types import Score, Stop, Trajectory


def episode(turns: int, *, is_success: bool, stop: Stop = Stop.TERMINATED) -> Trajectory:
    turn = make_turn((7,))
    return make_episode(
        *(turn,) * turns, outcome=Score(value=float(is_success), is_success=is_success), stop=stop
    )


def test_the_paper_damps_what_its_code_adds() -> None:
    # λ .5, H - h 2, V .4, V' .8, R 1: .25 + .75 · .4 = .55 in the paper, .4 - .05 + .25 = .60 in the code.
    seen = ValuedEpisode(outcome=1.0, values=(0.4, 0.8, 0.9))
    assert doubly_robust(seen, mixing=0.5) == pytest.approx([0.55, 0.5 + 0.5 * 0.1, 1.0])
    assert digirl_advantages(seen, discount=0.5) == pytest.approx([0.6, 0.1 - 0.05 + 0.5, 0.1 - 0.05 + 1.0])
    lost = ValuedEpisode(outcome=0.0, values=(0.2, 0.5, 0.5, 0.9))
    assert digirl_advantages(lost, discount=0.5)[:2] == pytest.approx([0.25, -0.05]), "kept, dropped"
    assert digirl_advantages(lost, discount=0.5)[-1] == pytest.approx(-0.95), (
        "V behind the end is 0, not learned"
    )
    assert returns_to_go([0, 0, 0, 1], 0.5) == [0.125, 0.25, 0.5, 1.0]


def test_with_all_trust_in_the_outcome_every_turn_is_credited_with_it() -> None:
    seen = ValuedEpisode(outcome=1.0, values=(0.4, 0.8, 0.1))
    assert doubly_robust(seen, mixing=1.0) == [1.0, 1.0, 1.0]
    assert doubly_robust(replace(seen, outcome=0.0), mixing=1.0) == [0.0, 0.0, 0.0]
    flat = ValuedEpisode(outcome=1.0, values=(0.5, 0.5, 0.5))
    assert doubly_robust(flat, mixing=0.5) == [0.25, 0.5, 1.0]


def test_web_rl_mixes_the_next_value_with_the_outcome() -> None:
    assert webrl_advantages(ValuedEpisode(outcome=1.0, values=(0.4, 0.6)), mixing=0.5) == pytest.approx(
        [0.4, 0.4]
    )
    assert webrl_advantages(ValuedEpisode(outcome=0.0, values=(0.4, 0.6)), mixing=1.0) == pytest.approx(
        [0.2, -0.6]
    )
    assert webrl_advantages(ValuedEpisode(outcome=0.0, values=(0.4, 0.6)), mixing=0.0) == pytest.approx(
        [-0.4, -0.6]
    )


def test_what_was_cut_has_no_outcome_but_what_was_thought_of_it() -> None:
    solved, cut = episode(2, is_success=True), episode(2, is_success=False, stop=Stop.MAX_TOKENS)
    won, lost = attach_values([solved, cut], [[0.2, 0.6], [0.3, 0.7]])
    assert (won.outcome, lost.outcome) == (1.0, 0.7)
    assert lost.gains == pytest.approx([0.4, 0.0])
    assert labels([solved])[0] == [1.0, 1.0] and np.isnan(labels([cut])[0]).all()
    assert attach_values([episode(2, is_success=False, stop=Stop.MAX_TURNS)], [[0.3, 0.7]])[0].outcome == 0.0
    for wrong in ([[0.2]], []):
        with pytest.raises(DataError, match="give one a turn"):
            attach_values([solved], wrong)
    assert chances([[0.0, np.log(3.0)], [1e9, -1e9]])[0] == pytest.approx([0.5, 0.75])
    assert chances([[1e9, -1e9]])[0] == pytest.approx([1.0, 0.0])


def test_equal_scores_stay_or_go_together() -> None:
    assert top_share([1, 0, 0, 0], 0.5) == [True, False, False, False], "failures do not fill up"
    assert top_share([0.0, 1.0] + [0.0] * 18, 0.1) == [False, True] + [False] * 18, (
        "less than a tenth succeed"
    )
    assert top_share([1, 1, 1, 0], 0.25) == [True, True, True, False]
    assert top_share([0.1, 0.4, 0.3, 0.2], 0.5) == [False, True, True, False]
    assert top_share([1.0] * 4, 0.5) == top_share([0.0] * 4, 1.0) == [False] * 4, "nothing is above anything"
    assert top_share([], 0.5) == [] and top_share([2, 1], 1.0) == [True, True]
    for share in (0.0, 1.5):
        with pytest.raises(UsageError, match="share of the highest"):
            top_share([1, 2], share)


def test_a_constant_value_of_the_task_leaves_the_share_of_returns() -> None:
    outcomes = np.random.default_rng(0).integers(0, 2, 64).astype(float)
    assert top_share((outcomes - 0.3).tolist(), 0.1) == top_share(outcomes.tolist(), 0.1)


def test_the_window_takes_what_is_neither_sure_nor_hopeless() -> None:
    logs = [[np.log([0.97]), np.log([0.8, 0.8]), np.log([0.4])], [np.log([0.9, 0.4]), np.zeros(0)]]
    assert in_window(logs, 0.5, 0.95) == [[False, True, False], [True, False]]
