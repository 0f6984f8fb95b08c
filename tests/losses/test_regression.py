"""Regression of log-ratios to advantages, and cross entropy of values: fixtures, fixed points and what is refused."""

from dataclasses import replace

import pytest
import torch
from tests.losses.conftest import batch, outputs

from quintain.errors import DataError, UsageError
from quintain.losses.regression import kl_regression
from quintain.losses.value import cross_entropy
from quintain.types import Batch, LossReport


def with_reference(base: Batch, reference: list[float]) -> Batch:
    said = torch.tensor(reference, dtype=torch.float64)
    return replace(base, extra=replace(base.extra, reference_logprobs=said))


@pytest.mark.parametrize(
    ("ratio", "advantage", "square", "huber"),
    [(0.2, 0.5, 0.09, 0.045), (0.3, 1.0, 0.49, 0.245), (-1.0, 1.0, 4.0, 1.5)],
)
def test_the_error_of_a_turn_by_value(ratio: float, advantage: float, square: float, huber: float) -> None:
    # The turn has two tokens, which share its log-ratio; each carries the whole error.
    told = with_reference(
        batch([0.0, 0.5, 0.5], advantages=[0, advantage, advantage], turn_id=[-1, 0, 0]), [9.0, -1.0, -2.0]
    )
    said = outputs([0.0, -1.0 + ratio, -2.0])
    assert float(kl_regression()(said, told).loss.detach()) == pytest.approx(square)
    report = kl_regression(shape="huber")(said, told)
    assert float(report.loss.detach()) == pytest.approx(huber)
    assert report.metrics["regression/log_ratio"] == pytest.approx(ratio)


def test_at_the_reference_without_an_advantage_there_is_no_gradient() -> None:
    told = with_reference(batch([0.5, 0.5], advantages=[0.0, 0.0]), [-1.0, -2.0])
    said = outputs([-1.0, -2.0])
    (slope,) = torch.autograd.grad(kl_regression(3.0)(said, told).loss, said.logprobs)
    assert slope.tolist() == [0.0, 0.0]


def test_the_fixed_point_is_the_best_policy_under_a_penalty_whoever_sampled() -> None:
    # Two actions, β .5, advantages that add up under π_ref e^{A/β} (Z = 1), actions drawn by a third policy.
    beta, reference = 0.5, torch.tensor([0.3, 0.7], dtype=torch.float64)
    best = torch.tensor([0.6, 0.4], dtype=torch.float64)
    advantages = beta * (best / reference).log()
    drawn = torch.multinomial(
        torch.tensor([0.9, 0.1]), 200, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    theta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    base = batch([1 / 200] * 200, advantages=advantages[drawn].tolist(), lengths=[1] * 200)
    told = with_reference(base, reference.log()[drawn].tolist())
    optimizer = torch.optim.LBFGS([theta], max_iter=100, tolerance_grad=1e-12)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        logs = torch.log_softmax(theta, 0)[drawn]
        loss = kl_regression(beta)(replace(outputs([0.0] * 200), logprobs=logs), told).loss
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)
    assert torch.softmax(theta.detach(), 0).tolist() == pytest.approx(best.tolist(), abs=1e-3)


def test_what_the_regression_needs() -> None:
    with pytest.raises(UsageError, match="beta"):
        kl_regression(0.0)
    with pytest.raises(UsageError, match="reference"):
        kl_regression()(outputs([0.0]), batch([1.0]))


def classified(values: list[float], returns: list[float], weight: list[float]) -> LossReport:
    logits = torch.tensor(values, dtype=torch.float64)
    said = replace(outputs([0.0] * len(values)), values=logits)
    return cross_entropy()(said, batch(weight, returns=returns))


def test_cross_entropy_of_values_by_value() -> None:
    report = classified([0.0, 2.0, 5.0], [1.0, 0.0, 7.0], [0.5, 0.5, 0.0])
    assert float(report.loss) == pytest.approx((0.6931472 + 2.1269280) / 2)
    assert report.metrics["value/brier"] == pytest.approx((0.25 + 0.8807971**2) / 2)
    with pytest.raises(DataError, match="outcomes that a classifier learns: got 0 to 7; give 0 to 1"):
        classified([0.0, 0.0], [0.0, 7.0], [0.5, 0.5])
    with pytest.raises(UsageError, match="value head"):
        cross_entropy()(outputs([0.0]), batch([1.0]))
