"""Schedules: values by step."""

import pytest

from quintain.curriculum import Stages, linear
from quintain.errors import UsageError


def test_a_stage_begins_at_its_step() -> None:
    stages = Stages(((0, 5), (10, 10), (30, 20)))
    assert [stages.at(step) for step in (0, 9, 10, 29, 30, 1000)] == [5, 5, 10, 10, 20, 20]
    assert [stages.number(step) for step in (0, 10, 30)] == [0, 1, 2]


@pytest.mark.parametrize("starts", [(), (1,), (0, 5, 5), (0, 9, 3)])
def test_stages_out_of_order_are_refused(starts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="increasing steps: got"):
        Stages([(start, "x") for start in starts])


@pytest.mark.parametrize(("step", "value"), [(0, 1.0), (10, 1.0), (15, 0.75), (20, 0.5), (99, 0.5)])
def test_linear_by_hand(step: int, value: float) -> None:
    assert linear(step, first=(10, 1.0), last=(20, 0.5)) == pytest.approx(value)


def test_linear_between_two_equal_steps_jumps() -> None:
    assert linear(4, first=(5, 1.0), last=(5, 0.0)) == 1.0
    assert linear(5, first=(5, 1.0), last=(5, 0.0)) == 0.0


def test_linear_backwards_is_refused() -> None:
    with pytest.raises(UsageError, match="got steps 5 to 3"):
        linear(0, first=(5, 1.0), last=(3, 0.0))
