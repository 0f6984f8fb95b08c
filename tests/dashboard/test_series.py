from typing import Any

from quintain.dashboard.series import by_task, points, smooth, success


def test_rows_without_a_value_are_no_points() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 2, "a": 1},
        {"step": 0, "a": 0.5},
        {"step": 1, "a": None},
        {"step": 3},
    ]
    assert points(rows, "a") == ((0, 0.5), (2, 1.0))


def test_smoothing_is_the_mean_of_what_came_before() -> None:
    curve = ((0, 0.0), (1, 1.0), (5, 2.0), (6, 6.0))
    assert smooth(curve, 1) == curve
    assert smooth(curve, 2) == ((0, 0.0), (1, 0.5), (5, 1.5), (6, 4.0))
    assert smooth(curve, 9) == ((0, 0.0), (1, 0.5), (5, 1.0), (6, 2.25))
    assert smooth((), 3) == ()


def test_success_has_its_interval(rows: list[dict[str, Any]]) -> None:
    found = success(rows)
    assert found.held_out == ((0, 0.1), (10, 0.9)) == found.main
    assert found.band == ((0, 0.05, 0.2), (10, 0.8, 0.95))
    assert found.training[-1] == (10, 1.0)
    assert found.last_step == 10


def test_without_evaluation_training_is_the_curve() -> None:
    found = success([{"step": 4, "train/success": 0.5}])
    assert found.main == ((4, 0.5),) and found.band == ()
    assert (success([]).main, success([]).last_step) == ((), 1)


def test_a_mixed_run_has_a_curve_of_each_environment() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 0, "eval/task/guess/success": 0.1, "eval/task/babyai/GoTo/success": 0.2},
        {"step": 1, "task/guess/success": 0.9, "task/calc/success": 0.3, "task/calc/reward": 5.0},
        {"step": 2, "eval/task/guess/success": 0.4, "eval/task/babyai/GoTo/success": None},
    ]
    assert by_task(rows) == {
        "babyai/GoTo": ((0, 0.2),),
        "calc": ((1, 0.3),),
        "guess": ((0, 0.1), (2, 0.4)),
    }
    assert by_task([{"step": 0, "eval/success": 0.5}]) == {}
