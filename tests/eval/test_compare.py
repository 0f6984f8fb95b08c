"""Comparisons of runs, paired by task."""

from collections.abc import Callable

import pytest

from quintain.errors import UsageError
from quintain.eval.compare import COLUMNS, compare
from quintain.eval.statistics import mcnemar
from quintain.types import Failure, Trajectory

Episode = Callable[..., Trajectory]


def run(episode: Episode, results: str) -> list[Trajectory]:
    """Return one episode per letter: 1 solved, 0 not."""
    return [episode(f"t{place}", letter == "1") for place, letter in enumerate(results)]


def test_two_runs_by_hand(episode: Episode) -> None:
    found = compare({"old": run(episode, "1000000011"), "new": run(episode, "0111110011")})
    old, new = found.rows
    assert (found.baseline, old.difference, old.p_value) == ("old", None, None)
    assert new.difference is not None
    assert new.difference.mean == pytest.approx(0.4)
    assert new.difference.num == 10
    assert new.difference.low < 0.4 < new.difference.high
    assert new.p_value == pytest.approx(mcnemar(1, 5))


def test_failures_are_left_out_of_the_pairs(episode: Episode, broken: Failure) -> None:
    old = run(episode, "0001")
    new = [*run(episode, "111")[:2], episode("t2", broken), episode("t3", True)]
    row = compare({"old": old, "new": new}).rows[1]
    assert row.difference is not None
    assert (row.difference.num, row.evaluation.num_failed) == (3, 1)
    assert row.difference.mean == pytest.approx(2 / 3)


def test_order_of_arrival_means_nothing(episode: Episode) -> None:
    old, new = run(episode, "10100"), run(episode, "11101")
    assert compare({"old": old, "new": new}) == compare({"old": old[::-1], "new": new})


def test_several_episodes_of_a_task_count_as_their_mean(episode: Episode) -> None:
    old = [episode("a", False), episode("a", True), episode("b", False), episode("b", False)]
    new = [episode("a", True), episode("a", True), episode("b", True), episode("b", False)]
    row = compare({"old": old, "new": new}).rows[1]
    assert row.difference is not None
    assert (row.difference.mean, row.difference.num) == (0.5, 2)
    assert row.p_value == pytest.approx(0.5)  # two equal differences: 2 of 4 sign patterns


def test_p_values_are_corrected_for_the_number_of_rows(episode: Episode) -> None:
    old, new = run(episode, "000000"), run(episode, "111111")
    alone = compare({"old": old, "new": new}).rows[1].p_value
    rows = compare({"old": old, "new": new, "other": old}).rows
    assert alone == pytest.approx(2 / 64)
    assert [row.p_value for row in rows] == [None, pytest.approx(4 / 64), 1.0]


def test_runs_without_a_shared_task_are_not_paired(episode: Episode) -> None:
    row = compare({"old": [episode("a", True)], "new": [episode("b", True)]}).rows[1]
    assert (row.difference, row.p_value) == (None, None)
    assert row.cells()[6:] == ("", "", "")


def test_a_named_baseline_keeps_the_order_of_rows(episode: Episode) -> None:
    found = compare({"a": run(episode, "01"), "b": run(episode, "00")}, baseline="b")
    assert [row.name for row in found.rows] == ["a", "b"]
    assert found.rows[0].difference is not None
    assert found.rows[0].difference.mean == 0.5


def test_cells_match_the_columns(episode: Episode) -> None:
    rows = compare({"old": run(episode, "0000000000"), "new": run(episode, "1111111100")}).rows
    assert all(len(row.cells()) == len(COLUMNS) for row in rows)
    cells = rows[1].cells()
    assert cells[:7] == ("new", "80.0 %", "[49.0, 94.3]", "0.800", "1.0", "0", "10")
    assert cells[7].startswith("+80.0 [")
    assert cells[8] == "0.0078"  # 2 / 2^8


def test_one_run_or_an_unknown_baseline_is_refused(episode: Episode) -> None:
    with pytest.raises(UsageError, match="got 1"):
        compare({"a": run(episode, "1")})
    with pytest.raises(UsageError, match="got 'bse'; did you mean 'base'"):
        compare({"base": run(episode, "1"), "new": run(episode, "1")}, baseline="bse")
