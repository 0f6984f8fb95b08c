"""Rewards of answers by what came before them."""

from itertools import product

import pytest

from quintain.errors import UsageError
from quintain.rewards.allocation import allocate

TALK = [("A", 0.0), ("B", 1.0), ("A", 1.0), ("B", 1.0)]


def test_the_fixture_by_own_history_and_by_that_of_all() -> None:
    assert allocate(TALK) == [0.0, 1.0, 1.5, 1.0]
    assert allocate(TALK, history="all") == [0.0, 1.0, 1.25, 1.25]


def test_quality_and_margin_are_what_they_reduce_to() -> None:
    for q, r in product((0.0, 1.0), (0.0, 1.0)):
        _, quality = allocate([("A", q), ("A", r)], shape="quality", alpha=1.0)
        assert quality - r == pytest.approx(q * r - (1 - q) * (1 - r)) == pytest.approx(r + q - 1)
        _, margin = allocate([("A", q), ("A", r)], alpha=1.0)
        assert margin - r == pytest.approx(r - q)


def test_without_weight_answers_are_paid_as_they_are() -> None:
    for shape, history in product(("margin", "quality"), ("own", "all")):
        assert allocate(TALK, shape=shape, history=history, alpha=0.0) == [0, 1, 1, 1]  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert allocate([]) == []


def test_other_words_are_refused() -> None:
    with pytest.raises(UsageError, match="shape of an allocation: got 'best'; "):
        allocate([], shape="best")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="history of an allocation: got 'none'; "):
        allocate([], history="none")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
