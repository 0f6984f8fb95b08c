"""Verdicts that cannot be read: what is left out, what is borne, and what ends the run."""

import pytest

from quintain.errors import FailureRateError
from quintain.rollout.verdicts import Verdicts
from quintain.types import Failure

SILENT = Failure(
    owner="judge", kind="judge_unreadable", message="judge at U: got 'fine', which does not end with SCORE"
)


def test_a_bounded_share_is_left_out_and_measured() -> None:
    verdicts = Verdicts(0.1)
    assert verdicts.read([0.5, SILENT, 1.0]) == [0.5, None, 1.0]
    assert verdicts.measure() == {"verdicts/unread": pytest.approx(1 / 3)}
    assert verdicts.measure() == {}, "nothing was asked since"
    assert verdicts.read([0.0] * 37) == [0.0] * 37
    assert verdicts.measure() == {"verdicts/unread": 0.0}
    assert verdicts.read([SILENT, SILENT, SILENT, 0.0]) == [None, None, None, 0.0], "4 of 44"
    with pytest.raises(
        FailureRateError,
        match=r"got 5 of 45 that cannot be used, more than 10.0%; the first \(judge_unreadable\): judge at U: got "
        r"'fine', which does not end with SCORE; or bear more with --max-broken$",
    ):
        verdicts.read([SILENT])


def test_a_few_are_borne_however_few_there_are() -> None:
    verdicts = Verdicts(0.01)
    assert verdicts.read([SILENT]) == [None], "one alone says nothing of a rate"
    assert verdicts.read([0.5, SILENT, SILENT]) == [0.5, None, None]
    with pytest.raises(FailureRateError, match="got 4 of 5"):
        verdicts.read([SILENT])
    with pytest.raises(FailureRateError, match="got 1 of 2"):
        Verdicts(0.0).read([0.5, SILENT])


def test_a_judge_that_never_answers_is_no_judge() -> None:
    with pytest.raises(FailureRateError, match=r"got 2 of 2 that cannot be used; the first .* SCORE$"):
        Verdicts(0.99).read([SILENT, SILENT])
    assert Verdicts(1.0).read([SILENT] * 9) == [None] * 9, "unless that was asked for"


def test_nobody_can_bear_more_without_a_flag() -> None:
    with pytest.raises(FailureRateError, match=r"with SCORE$"):
        Verdicts(0.0, flag="").read([0.5, SILENT])
