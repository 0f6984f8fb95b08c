"""Programs over columns: what they compute, what is refused, and what a solution is worth on rows that nobody saw."""

from random import Random
from statistics import fmean

import numpy as np
import pytest

from quintain.environments.check import check
from quintain.environments.protocol import RunsSolutions, advance, begin
from quintain.errors import UsageError
from quintain.types import Action
from quintain.worlds.fit.game import Fit
from quintain.worlds.fit.program import ProgramError, fit_columns, run_lines, score_fit
from quintain.worlds.fit.table import KINDS, SHAPES, fill_shape, shapes_of

COLUMNS = {"a": np.array([1.0, 2.0, 4.0]), "b": np.array([4.0, 2.0, 1.0])}


def start(index: int = 0, features: int = 2) -> Fit:
    world = Fit(features=features)
    begin(world, world.task("train", index))
    return world


def test_it_keeps_the_protocol() -> None:
    report = check("fit", episodes=3)
    assert report.has_passed, "\n".join(report.lines())
    assert isinstance(Fit(), RunsSolutions)


def test_lines_are_arithmetic_over_columns() -> None:
    known, chosen = run_lines("x = a / b; y = max(x - 1, 0) ** 2\nz = -abs(a % 3)\nfit(a, y, a)", COLUMNS)
    assert known["x"].tolist() == [0.25, 1, 4]
    assert known["y"].tolist() == [0, 0, 9]
    assert known["z"].tolist() == [-1, -2, -1]
    assert chosen == ("a", "y")
    assert run_lines("x = 7", COLUMNS)[0]["x"].tolist() == [7, 7, 7]
    assert run_lines("x = a", COLUMNS)[1] == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = a\ny = log(a - 2)", r"line 2: log\(a - 2\) is no number in every row"),
        ("x = d + 1", r"line 1: d is no column; there are a, b"),
        ("x = a.real", r"line 1: a.real cannot be computed"),
        ("x = __import__('os')", r"line 1: __import__\('os'\) cannot be computed"),
        ("x = max(a)", r"line 1: max takes 2, got 1"),
        ("a = b", r"line 1: got 'a = b'; write NAME = EXPRESSION with a new name"),
        ("x = = b", r"line 1: 'x = = b' cannot be read"),
        ("x = a if b else a", r"line 1: a if b else a cannot be computed"),
        ("import os", r"line 1: got 'import os'; write NAME"),
        ("fit()", r"line 1: got 'fit\(\)'; write NAME"),
        ("fit(x)", r"line 1: x is no column"),
        ("fit(a)\nx = a", r"line 2: got 'x = a' after fit"),
        ("x = " + "(" * 190 + "a" + ")" * 190, r"line 1: got 385 characters; write 200 at most"),
        ("x = a;" * 21, r"line 21: got 21 lines; write 20 at most"),
        ("x = 9 ** 9 ** 9", r"line 1: 9 \*\* 9 \*\* 9 is no number"),
    ],
)
def test_what_cannot_be_run_is_said_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        run_lines(text, COLUMNS)


def test_a_fit_is_least_squares_with_a_constant_and_r2_is_not_below_0() -> None:
    x, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0])
    assert fit_columns(x, y, np.array([[10.0]])) == pytest.approx([21.0])
    assert score_fit(np.array([1.0, 3.0, 6.0]), y) == pytest.approx(1 - 1 / 8)
    assert score_fit(np.array([9.0, 9.0, 9.0]), y) == 0


def test_what_is_measured_and_what_is_paid_are_of_other_rows() -> None:
    world = start()
    solution = world.expert_action().text
    told = world.run_solution(solution)
    paid = advance(world, world.hand_in(solution))
    assert told.metric is not None and told.metric > 0.9 and paid.reward > 0.9
    assert told.metric != paid.reward
    assert paid.is_terminated and paid.is_success
    poor = start()
    result = advance(poor, poor.hand_in("fit(a)"))
    assert result.is_terminated and result.is_success is False and result.reward < 0.5


def test_a_solution_that_does_not_run_is_not_handed_in_and_the_last_that_ran_is() -> None:
    world = start()
    assert not advance(world, Action(text="submit")).is_valid
    assert not advance(world, Action(text="submit\nfit(zz)")).is_over
    advance(world, Action(text="fit(a)"))
    failed = advance(world, Action(text="x = 1 / 0\nfit(x)"))
    assert not failed.is_valid and str(failed.observation).startswith("Error: line 1")
    other = start()
    assert advance(world, Action(text="Submit")).reward == advance(other, other.hand_in("fit(a)")).reward


def test_the_beginning_of_a_solution_is_checked_and_nothing_changes() -> None:
    world = start()
    before = world.state_key()
    assert world.check_solution("x = a * b") == "" and world.run_solution("x = a * b").metric is None
    assert world.check_solution("x = a * d").startswith("Error: line 1")
    world.run_solution("fit(a)")
    assert world.state_key() == before


def test_features_help_whose_shapes_the_kind_of_task_says() -> None:
    assert len({shapes_of(kind) for kind in range(len(KINDS))}) == len(KINDS) == len(SHAPES)
    gains = list[float]()
    for index in range(20):
        world = start(index)
        problem = world.snapshot().problem
        found = [
            world.run_solution(text).metric or 0.0
            for text in ("fit(a, b, c)", f"x = {problem.features[0]}\nfit(a, b, c, x)", problem.solution())
        ]
        assert found[2] > 0.9 and found == sorted(found)
        gains.append(found[1] - found[0])
    assert 0.3 < fmean(gains) < 0.6, "a feature of two"
    linear = start(features=0)
    assert linear.expert_action().text == "fit(a, b, c)"
    assert (linear.run_solution("fit(a, b, c)").metric or 0) > 0.6


def test_shapes_are_filled_with_columns_and_not_within_words() -> None:
    assert {fill_shape("sin(p)", Random(seed)) for seed in range(30)} == {"sin(a)", "sin(b)", "sin(c)"}
    assert all(fill_shape("max(p - k, 0)", Random(seed))[:4] == "max(" for seed in range(5))
    assert len({fill_shape("p % k", Random(seed)) for seed in range(200)}) == 12


def test_no_table_is_of_both_splits() -> None:
    world, seen = Fit(), dict[str, set[object]]()
    for split in ("train", "eval"):
        for index in range(30):
            begin(world, world.task("eval" if split == "eval" else "train", index))
            seen.setdefault(split, set()).add(world.snapshot().problem)
    assert not seen["train"] & seen["eval"]


@pytest.mark.parametrize(("options", "message"), [({"features": 3}, "features=3"), ({"turns": 0}, "turns=0")])
def test_options_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=f"fit: got .*{message}"):
        Fit(**options)
