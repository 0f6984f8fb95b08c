"""Losses against numbers of public code that was run, and against equations by hand."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from quintain.losses.importance import truncate_importance, truncate_weights
from quintain.losses.policy import clip_ratio, gspo
from quintain.losses.regression import kl_regression
from quintain.types import Batch, Outputs

NOW = (-1.0, -0.5, -2.0, -1.5, -0.7, -3.0)
PROXIMAL = (-1.1, -0.6, -1.9, -1.0, -0.7, -1.0)
SAMPLED = (-1.2, -2.6, -1.5, -3.5, -0.7, -2.0)
ADVANTAGES = (1.0, 1.0, 1.0, -0.5, -0.5, -0.5)
AREAL = {
    "drop": (-0.08540815588474045, (-0.2035671350391298, 0.0, -0.10108844147447621, 0.0, 0.08333333333333333, 0.0)),
    "truncate": (
        -0.7536628127341828,
        (-0.2035671350391298, -0.9209757650630395, -0.10108844147447621, 0.2527211082135972, 0.08333333333333333, 0.0),
    ),
}  # fmt: skip
"""Value and gradient of AReaL's ``ppo_actor_loss_fn`` at a clip of .4 and a cap of 5 on its token ratios, in the modes
``mask`` (its default, with which ASearcher is trained) and ``clamp``."""


@pytest.mark.parametrize("beyond", ["drop", "truncate"])
def test_the_decoupled_loss_of_areal(beyond: str, batch: Callable[..., Batch]) -> None:
    made = batch([1 / 6] * 6, advantages=ADVANTAGES, logprobs=SAMPLED)
    proximal = torch.tensor(PROXIMAL, dtype=torch.float64)
    logs = torch.tensor(NOW, dtype=torch.float64, requires_grad=True)
    loss = truncate_importance(clip_ratio(0.4, 0.4), cap=5.0, beyond=beyond, proximal=lambda _: proximal)  # type: ignore[arg-type]
    report = loss(Outputs(logprobs=logs, entropy=torch.zeros_like(logs)), made)
    (gradient,) = torch.autograd.grad(report.loss, logs)
    value, expected = AREAL[beyond]
    assert report.loss.item() == pytest.approx(value, abs=1e-7)  # its weights are in float32
    assert gradient.tolist() == pytest.approx(expected, abs=1e-7)
    assert report.metrics["importance/capped_fraction"] == pytest.approx(2 / 6)


def test_beyond_the_cap() -> None:
    logs = torch.tensor([0.0, math.log(3), math.log(5)], dtype=torch.float64)
    assert truncate_weights(logs, cap=4.0).tolist() == pytest.approx([1, 3, 4])
    assert truncate_weights(logs, cap=4.0, beyond="drop").tolist() == pytest.approx([1, 3, 0])


def test_a_turn_of_twenty_tokens_counts_as_much_as_one_of_two(batch: Callable[..., Batch]) -> None:
    """WebRL's equation 5, E over turns of (β·log π/π_ref - A)²: errors .3 and -.8 → (.09 + .64)/2, not by tokens."""
    weight = [1 / (2 * 20)] * 20 + [1 / (2 * 2)] * 2  # as aggregation turn_mean makes them
    made = batch(weight, advantages=[0.2] * 20 + [1.0] * 2, turn_id=[0] * 20 + [1] * 2)
    made = replace(made, extra=replace(made.extra, reference_logprobs=torch.zeros(22, dtype=torch.float64)))
    logs = torch.tensor([0.025] * 20 + [0.1] * 2, dtype=torch.float64, requires_grad=True)
    report = kl_regression(1.0)(Outputs(logprobs=logs, entropy=torch.zeros_like(logs)), made)
    assert report.loss.item() == pytest.approx((0.3**2 + 0.8**2) / 2)
    (gradient,) = torch.autograd.grad(report.loss, logs)
    assert gradient.tolist() == pytest.approx([0.3] * 20 + [-0.8] * 2)  # 2·error / 2 turns, for each token


@pytest.mark.parametrize(("length", "bound"), [(20, 0.003), (2000, 3e-4), (80, 0.0015)])
@pytest.mark.parametrize("unit", ["sequence", "turn"])
def test_bounds_of_a_sequence_ratio_follow_its_length(
    length: int, bound: float, unit: str, batch: Callable[..., Batch]
) -> None:
    """√(2000/n) times 3e-4: a ratio that is lower by less than this keeps its gradient, by more loses it."""
    for inside, change in ((True, 0.97), (False, 1.03)):
        logs = torch.full((length,), math.log1p(-bound * change), dtype=torch.float64, requires_grad=True)
        made = batch([1 / length] * length, advantages=[-1.0] * length)
        loss = gspo(3e-4, 4e-4, unit=unit, bound_tokens=2000)  # type: ignore[arg-type]
        report = loss(Outputs(logprobs=logs, entropy=torch.zeros_like(logs)), made)
        (gradient,) = torch.autograd.grad(report.loss, logs)
        assert bool(gradient.abs().sum() > 0.5) == inside
        assert report.metrics["policy/clip_fraction"] == float(not inside)
        plain = gspo(3e-4, 4e-4, unit=unit)(Outputs(logprobs=logs, entropy=torch.zeros_like(logs)), made)  # type: ignore[arg-type]
        assert plain.metrics["policy/clip_fraction"] == float(bound * change > 3e-4), "as published"


def test_noise_alone_does_not_take_the_gradient_of_short_sequences(batch: Callable[..., Batch]) -> None:
    """Log-probs that are off by .005 a token, sequences of 20: 38 % are clipped as published, hardly any by length."""
    generator = torch.Generator().manual_seed(0)
    noise = 0.005 * torch.randn(400 * 20, generator=generator, dtype=torch.float64)
    signs = torch.randint(0, 2, (400,), generator=generator).repeat_interleave(20) * 2.0 - 1
    made = batch([1 / 8000] * 8000, advantages=signs.tolist(), lengths=[20] * 400)
    outputs = Outputs(logprobs=noise, entropy=torch.zeros_like(noise))
    assert gspo()(outputs, made).metrics["policy/clip_fraction"] == pytest.approx(0.38, abs=0.06)
    assert gspo(bound_tokens=2000)(outputs, made).metrics["policy/clip_fraction"] < 0.01
