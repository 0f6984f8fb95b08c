"""InfoNCE by hand, its masks and its gradient."""

import math

import pytest
import torch

from quintain.errors import UsageError
from quintain.losses.contrastive import info_nce


def unit(*angles: float) -> torch.Tensor:
    return torch.tensor([[math.cos(a), math.sin(a)] for a in angles], dtype=torch.float64)


def test_three_by_three_by_hand() -> None:
    queries, documents = unit(0.0, 1.0, 2.0), unit(0.1, 1.3, 1.7)
    loss = info_nce(queries, documents, torch.arange(3), temperature=0.05)
    by_hand = 0.0
    for q, own in ((0.0, 0.1), (1.0, 1.3), (2.0, 1.7)):
        scores = [math.exp(math.cos(q - d) / 0.05) for d in (0.1, 1.3, 1.7)]
        by_hand -= math.log(math.exp(math.cos(q - own) / 0.05) / sum(scores)) / 3
    assert loss.item() == pytest.approx(by_hand, abs=1e-12)
    assert by_hand > 0.01


def test_the_example_of_two() -> None:
    queries = torch.eye(2, dtype=torch.float64)
    documents = torch.tensor([[0.9, 0.8], [0.8, 0.9]], dtype=torch.float64)
    assert info_nce(queries, documents, torch.arange(2)).item() == pytest.approx(math.log1p(math.exp(-2.0)))


def test_the_same_document_drawn_twice_is_no_negative() -> None:
    queries, documents = unit(0.0, 0.2, 2.0), unit(0.1, 0.1, 1.7)
    keys = torch.tensor([7, 7, 9])
    masked = info_nce(queries, documents, keys)
    alone = [info_nce(queries[[i, 2]], documents[[i, 2]], torch.arange(2)) for i in (0, 1)]
    third = info_nce(queries, documents, torch.arange(3)) * 3
    assert masked < info_nce(queries, documents, torch.arange(3))
    # A query whose only other document is its own has nothing to tell it from.
    assert info_nce(queries[:2], documents[:2], keys[:2]).item() == 0
    assert alone[0].isfinite() and third.isfinite()


def test_duplicates_get_no_gradient_from_each_other() -> None:
    queries = unit(0.0, 0.4).requires_grad_()
    documents = unit(0.1, 0.1)
    (info_nce(queries, documents, torch.tensor([1, 1]))).backward()
    assert queries.grad is not None and queries.grad.abs().max() == 0


def test_the_temperature_is_above_zero() -> None:
    with pytest.raises(UsageError, match=r"temperature of InfoNCE: got 0.0; give a number above 0"):
        info_nce(torch.eye(2), torch.eye(2), torch.arange(2), temperature=0.0)
