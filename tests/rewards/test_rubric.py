"""Rubrics: weights, penalties, the floor that is said, and how far two judges agree."""

import pytest

from quintain.errors import DataError
from quintain.rewards.rubric import agree, find_failed, score_rubric

WEIGHTS = {"a": 2.0, "b": 1.0, "bad": -4.0}


@pytest.mark.parametrize(
    ("held", "score", "floored", "failed"),
    [
        ("a b", 1.0, 1.0, ()),
        ("a", 2 / 3, 2 / 3, ("b",)),
        ("a b bad", -1 / 3, 0.0, ("bad",)),
        ("", 0.0, 0.0, ("a", "b")),
    ],
)
def test_scores_by_hand(held: str, score: float, floored: float, failed: tuple[str, ...]) -> None:
    verdicts = {name: name in held.split() for name in WEIGHTS}
    assert score_rubric(WEIGHTS, verdicts, is_floored=False) == pytest.approx(score)
    assert score_rubric(WEIGHTS, verdicts, is_floored=True) == pytest.approx(floored)
    assert find_failed(WEIGHTS, verdicts) == failed


def test_what_nobody_judged_is_no_score() -> None:
    with pytest.raises(DataError, match="got no verdict on b, bad; judge every item, or give no score"):
        score_rubric(WEIGHTS, {"a": True}, is_floored=True)
    with pytest.raises(DataError, match="no item of positive weight"):
        score_rubric({"bad": -1.0}, {"bad": False}, is_floored=True)


def test_agreement_by_hand() -> None:
    first = [True] * 25 + [False] * 25
    second = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    found = agree(first, second)
    assert (found.accuracy, found.kappa) == (pytest.approx(0.7), pytest.approx(0.4))
    assert agree([True, True], [True, True]).kappa == 1.0
    with pytest.raises(DataError, match="got 1 and 2 verdicts"):
        agree([True], [True, False])
