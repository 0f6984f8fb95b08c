"""Rounds that made no data: which stage left none, how often, and when it is said."""

from typing import Any

from quintain.data.pairs import Pairs
from quintain.data.pipeline import Pipeline, check_stage
from quintain.data.stages import keep_solved
from quintain.runs.empty_rounds import Emptied, describe_rounds, find_empty_stage, warn_if_repeated


def row(step: int, num_in: int, solved: int, distinct: int) -> dict[str, Any]:
    return {
        "step": step, "train/success": 0.0, "data/in": float(num_in), "data/solved": float(solved),
        "data/distinct": float(distinct), "data/kept": float(distinct), "data/tokens": 0.0,
    }  # fmt: skip


def test_the_first_stage_that_kept_none_is_named() -> None:
    assert find_empty_stage(row(1, 8, 0, 0)) == Emptied(stage="solved", num_in=8)
    assert find_empty_stage(row(1, 8, 3, 0)) == Emptied(stage="distinct", num_in=8)
    assert (
        find_empty_stage(row(1, 8, 3, 2)) is None and find_empty_stage({"step": 1, "train/loss": 0.5}) is None
    )
    assert find_empty_stage(row(1, 0, 0, 0)) == Emptied(stage="", num_in=0)
    pairs = {"step": 1, **Pairs(()).metrics}
    assert find_empty_stage(pairs) == Emptied(stage="", num_in=None)
    metrics = (
        Pipeline(keep_solved(), check_stage("none", "is never kept", lambda _: False)).run([]).funnel.metrics
    )
    assert find_empty_stage({"step": 1, **metrics}) == Emptied(stage="", num_in=0)


def test_a_round_is_emptied_where_all_of_its_trainings_are() -> None:
    both = {**row(1, 8, 0, 0), "data/2/in": 8.0, "data/2/above": 0.0, "data/2/kept": 0.0}
    assert find_empty_stage(both) == Emptied(stage="solved", num_in=8)
    assert (
        find_empty_stage({**both, "data/2/kept": 4.0}) is None
        and find_empty_stage({**both, "data/2/pairs": 1.0}) is None
    )


def test_the_end_says_which_stage_how_often_and_what_to_do() -> None:
    rows = [{"step": 0, "eval/success": 0.0}, row(1, 8, 0, 0), row(2, 8, 2, 1), row(3, 16, 0, 0)]
    assert describe_rounds(rows).startswith(
        "2 of 3 rounds made no data (solved left none of 24 episodes); begin with a policy"
    )
    assert describe_rounds(rows).endswith(", or loosen solved")
    mixed = describe_rounds([*rows, row(4, 8, 1, 0)])
    assert "3 of 4 rounds" in mixed and mixed.endswith(", or loosen solved and distinct")
    assert "(solved left none of 24 episodes in 2, distinct left none of 8 episodes in 1)" in mixed
    assert describe_rounds(rows[:1]) == describe_rounds([row(1, 8, 2, 1)]) == ""
    assert describe_rounds([{"step": 1, "data/pairs": 0.0}]).startswith(
        "1 of 1 rounds made no data (no pair was made); take tasks that are neither always nor never solved"
    )
    assert "no episode came in); begin with" in describe_rounds([row(1, 0, 0, 0)])


def test_it_is_said_once_for_rounds_in_a_row() -> None:
    empty, full = row(1, 8, 0, 0), row(2, 8, 2, 1)
    assert (
        warn_if_repeated([{"step": 0}, empty])
        == warn_if_repeated([empty, full])
        == warn_if_repeated([empty, full, empty])
        == ""
    )
    assert warn_if_repeated([empty, empty]) == describe_rounds([empty, empty]) != ""
    assert warn_if_repeated([full, empty, empty]) == describe_rounds([full, empty, empty])
    assert warn_if_repeated([empty, empty, empty]) == "", "it was said"
    assert warn_if_repeated([empty, empty, full, empty, empty]) != ""
    assert warn_if_repeated([empty, empty, full]) == ""
