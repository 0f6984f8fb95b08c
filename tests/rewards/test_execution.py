"""What was achieved: checks that pass, a state that had to be worked for."""

import pytest

from quintain.errors import DataError
from quintain.rewards.execution import share_passed, state_reached


def test_the_share_of_checks_that_pass() -> None:
    assert share_passed([True, False, True, True]) == 0.75
    assert (share_passed([False]), share_passed([True])) == (0, 1)
    with pytest.raises(DataError, match="results of checks: got none; check at least one thing"):
        share_passed([])


@pytest.mark.parametrize(("now", "expected"), [("paid", True), ("new", False), ("sent", False)])
def test_a_state_is_reached_by_going_there(now: str, expected: bool) -> None:
    assert state_reached(now, goal="paid", start="new") is expected


def test_a_state_that_doing_nothing_reaches_is_no_achievement() -> None:
    assert not state_reached("new", goal="new", start="new")
