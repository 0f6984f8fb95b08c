import math

import pytest
import torch

from quintain.errors import UsageError
from quintain.losses.contrastive import info_nce


def test_three_by_three_by_hand() -> None:
    similarities = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.1], [0.0, 0.3, 0.7]], dtype=torch.float64)
    found = info_nce(similarities, torch.eye(3, dtype=torch.float64), temperature=0.05)
    by_hand = [
        math.log(sum(math.exp(s / 0.05) for s in row)) - row[i] / 0.05
        for i, row in enumerate(similarities.tolist())
    ]
    assert float(found) == pytest.approx(sum(by_hand) / 3, rel=1e-9)
    assert float(info_nce(torch.eye(2), torch.eye(2), temperature=1.0)) == pytest.approx(0.31326, abs=1e-5)


def test_the_same_text_is_no_negative_of_itself() -> None:
    queries = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    plain = info_nce(queries, queries, temperature=1.0)
    named = info_nce(queries, queries, temperature=1.0, names=["a", "a", "b"])
    other = math.log(1 + 1 / math.e)
    assert float(named) == pytest.approx((2 * other + math.log(1 + 2 / math.e)) / 3, rel=1e-6)
    assert named < plain
    queries.requires_grad_(True)
    [gradient] = torch.autograd.grad(info_nce(queries, queries.detach(), names=["a", "a", "b"]), queries)
    assert torch.isfinite(gradient).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"got \(2, 2\) and \(3, 3\)"):
        info_nce(torch.eye(2), torch.eye(3))
    with pytest.raises(UsageError, match="temperature of InfoNCE: got 0"):
        info_nce(torch.eye(2), torch.eye(2), temperature=0)
    with pytest.raises(UsageError, match="names of 2 keys: got 1"):
        info_nce(torch.eye(2), torch.eye(2), names=["a"])
