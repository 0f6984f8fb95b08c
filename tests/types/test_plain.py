"""Numbers and truth values of other packages, and numbers that may be paid."""

from decimal import Decimal
from fractions import Fraction
from math import inf, isnan, nan
from typing import Any

import numpy as np
import pytest
import torch

from quintain.types.plain import MAX_AMOUNT, as_amount, as_number, as_truth, mean_of


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (torch.tensor([2.0]), 2.0),
        (Fraction(1, 4), 0.25),
        (10**400, inf),
        (-(10**500), -inf),
        (np.array([1.0, 2.0]), None),
        (Decimal(1), None),
        ("1", None),
        (None, None),
        (1j, None),
    ],
)
def test_numbers_are_those_that_are_real(value: Any, number: float | None) -> None:
    assert as_number(value) == number
    assert as_truth(np.bool_(True)) is True and as_truth(1) is None


@pytest.mark.parametrize("value", [1e15, -MAX_AMOUNT, 0, True, np.float64(-3.5), 10**15])
def test_what_may_be_paid_is_a_float(value: Any) -> None:
    amount = as_amount(value)
    assert type(amount) is float and amount == value


@pytest.mark.parametrize("value", [1.01e15, -1e308, inf, -inf, nan, 10**400, "1", None])
def test_what_may_not_be_paid_is_none(value: Any) -> None:
    assert as_amount(value) is None


def test_the_squares_of_a_step_of_the_largest_amounts_are_finite() -> None:
    paid = torch.full((1_000_000,), MAX_AMOUNT)
    assert torch.isfinite((paid**2).sum()) and not isnan(float((paid - paid.mean()).std()))


def test_a_mean_need_not_be_finite() -> None:
    assert mean_of([1.0, 2.0]) == 1.5 and mean_of(iter([1e308, 1e308])) == 1e308
    assert mean_of([inf, 1.0]) == inf and isnan(mean_of([inf, -inf])) and isnan(mean_of([nan, 1.0]))
