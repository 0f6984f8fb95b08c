"""Methods of the family train, and continue after an interruption as if there had been none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.recipes.rl import collecting
from quintain.recipes.work import START

GROUPS = {"tasks": 2, "group_size": 3}
METHODS: dict[str, dict[str, Any]] = {
    "reinforce_plus_plus": {"tasks": 4, "kl": 0.1},
    "dapo": {**GROUPS, "attempts": 2, "overlong_tokens": 8},
    "starpo": {**GROUPS},
    "gigpo": {**GROUPS, "kl": 0.1},
    "loop": {**GROUPS},
    "rloo": {**GROUPS, "kl": 0.1},
}
Rows = Callable[[Path], list[dict[str, Any]]]


@pytest.mark.parametrize("recipe", METHODS)
def test_a_method_trains_and_resumes_bit_for_bit(
    recipe: str, runner: Any, rows: Rows, weights: Callable[[Path], str], interrupt: Callable[[int], None]
) -> None:
    whole = runner.train(recipe, **METHODS[recipe])
    curve = rows(whole)
    assert [row["step"] for row in curve] == [0, 1, 2]
    assert weights(whole / START) != weights(whole / "model")
    assert all("train/success" in row and "credit/groups" in row for row in curve[1:])
    interrupt(1)
    stopped = runner.train(recipe, **METHODS[recipe])
    assert not (stopped / "model").exists()
    runner.resume(stopped)
    assert rows(stopped) == curve
    assert weights(stopped / "model") == weights(whole / "model")


def test_dynamic_sampling_draws_other_tasks_until_enough_groups_differ(runner: Any, rows: Rows) -> None:
    assert collecting.differing(2, 3, attempts=2)
    folder = runner.train("dapo", **{**METHODS["dapo"], "steps": 1, "attempts": 4})
    last = rows(folder)[-1]
    num = last["credit/groups"]
    equal = last["credit/zero_variance_groups"] * num
    assert num % 2 == 0
    assert num - equal >= 2 or num == 8
