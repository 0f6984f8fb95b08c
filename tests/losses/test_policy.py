import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import pytest
import torch
from torch import Tensor

from quintain.losses.policy import cispo, clip_ratio, gspo, reinforce, whole_ratio
from quintain.types import Batch, Loss, Outputs

MakeBatch = Callable[..., Batch]
MakeOutputs = Callable[..., Outputs]


class Toy(Protocol):
    theta: Tensor
    behaviour: Tensor
    advantages: Tensor

    def batch(self) -> Batch: ...
    def gradient(self, loss: Loss, made: Batch | None = None) -> Tensor: ...
    def exact(self, objective: Callable[[Tensor], Tensor]) -> Tensor: ...


def gradient(loss: Loss, outputs: Outputs, batch: Batch) -> list[float]:
    """The gradient with respect to the log-probs."""
    return torch.autograd.grad(loss(outputs, batch).loss, outputs.logprobs)[0].tolist()


ON_POLICY = [
    reinforce(),
    clip_ratio(),
    clip_ratio(0.2, 0.28, dual=3.0),
    gspo(),
    gspo(unit="turn"),
    whole_ratio(),
    cispo(),
    cispo(low=0.5),
]


@pytest.mark.parametrize("loss", ON_POLICY)
def test_on_policy_every_loss_is_the_policy_gradient(toy: Toy, loss: Loss) -> None:
    want = -toy.exact(lambda p: (p * toy.advantages).sum())
    assert torch.allclose(toy.gradient(loss), want, atol=1e-12)
    assert float(want.norm()) > 0.1


@pytest.mark.parametrize("loss", ON_POLICY)
def test_a_step_makes_better_actions_likelier(toy: Toy, loss: Loss) -> None:
    after = torch.softmax(toy.theta - 0.1 * toy.gradient(loss), -1)
    before = toy.behaviour.exp()
    assert float((after * toy.advantages).sum()) > float((before * toy.advantages).sum())


def test_one_ratio_of_a_whole_stream_is_the_product_over_its_tokens(
    batch: MakeBatch, outputs: MakeOutputs
) -> None:
    made = batch([0.25] * 4, advantages=[1.0] * 2 + [-1.0] * 2, lengths=[2, 2])
    given = outputs([0.1, 0.3, -0.2, 0.0])
    first, second = math.exp(0.4), math.exp(-0.2)
    report = whole_ratio(1.0, 1.0)(given, made)
    assert report.loss.item() == pytest.approx(-0.5 * first + 0.5 * second)
    want = [-0.25 * first] * 2 + [0.25 * second] * 2
    assert gradient(whole_ratio(1.0, 1.0), given, made) == pytest.approx(want)
    assert whole_ratio(0.1, 0.1)(given, made).loss.item() == pytest.approx(-0.5 * 1.1 + 0.5 * 0.9)
    far = whole_ratio(1.0, 1e9)(outputs([19.0, 19.0, 0.0, 0.0]), made)
    assert far.loss.item() == pytest.approx(-0.5 * math.exp(20.0) + 0.5)


def test_off_policy_clip_to_infinity_is_importance_weighted_reinforce(toy: Toy) -> None:
    toy.theta = toy.theta + torch.tensor([[0.5, 0.0, -0.5], [0.0, 1.0, 0.0]], dtype=torch.float64)
    want = -toy.exact(lambda p: (p * toy.advantages).sum())
    assert torch.allclose(toy.gradient(clip_ratio(1e9, 1e9)), want, atol=1e-12)
    assert torch.allclose(toy.gradient(cispo(1e9)), want, atol=1e-12)
    assert not torch.allclose(toy.gradient(clip_ratio()), want, atol=1e-3)
    assert not torch.allclose(toy.gradient(reinforce()), want, atol=1e-3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "low", "high", "value", "slope"),
    [
        (1.25, 1.0, 0.2, 0.28, 1.25, 1.25),
        (1.25, 1.0, 0.2, 0.2, 1.2, 0.0),
        (0.75, -1.0, 0.2, 0.28, -0.8, 0.0),
        (0.75, 1.0, 0.2, 0.2, 0.75, 0.75),
        (1.25, -1.0, 0.2, 0.2, -1.25, -1.25),
        (0.5, -2.0, 1 - 1 / 1.1, 0.1, -2 / 1.1, 0.0),
    ],
)
def test_clip_by_hand(
    batch: MakeBatch,
    outputs: MakeOutputs,
    ratio: float,
    advantage: float,
    low: float,
    high: float,
    value: float,
    slope: float,
) -> None:
    made = batch([1.0], advantages=[advantage], logprobs=[-1.0])
    given = outputs([-1 + math.log(ratio)])
    report = clip_ratio(low, high)(given, made)
    assert report.loss.item() == pytest.approx(-value)
    assert gradient(clip_ratio(low, high), given, made) == pytest.approx([-slope])
    assert report.metrics["policy/clip_fraction"] == (slope == 0)
    assert report.metrics["policy/ratio_mean"] == pytest.approx(ratio)
    assert report.metrics["policy/approx_kl"] == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-6)
    assert report.metrics["policy/loss"] == pytest.approx(-value)


def test_dual_clip_bounds_only_negative_advantages(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([1.0, 1.0], advantages=[-1.0, 1.0])
    given = outputs([math.log(5.0), math.log(5.0)])
    assert clip_ratio()(given, made).loss.item() == pytest.approx(5 - 1.2)
    report = clip_ratio(dual=3.0)(given, made)
    assert report.loss.item() == pytest.approx(3 - 1.2)
    assert report.metrics["policy/clip_fraction"] == 1
    assert gradient(clip_ratio(dual=3.0), given, made) == [0, 0]


def test_only_tokens_with_weight_count(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0, 0.5, 0.5], advantages=[100, 1, 1], logprobs=[-9, -1, -1])
    given = outputs([math.nan, -1, -1], entropy=[50, 1, 3])
    for loss in ON_POLICY:
        report = loss(given, made)
        assert math.isfinite(report.loss.item())
        assert report.metrics["policy/entropy"] == 2
        assert report.metrics["policy/ratio_mean"] == 1
        assert report.metrics["policy/clip_fraction"] == 0
        assert gradient(loss, given, made)[0] == 0


def test_an_empty_mask_is_zero(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0.0, 0.0], advantages=[1, 1])
    made = replace(made, extra=replace(made.extra, num_trained=4))
    for loss in ON_POLICY:
        report = loss(outputs([-1, -2]), made)
        assert report.loss.item() == 0
        assert set(report.metrics.values()) == {0.0}


def test_ratios_that_overflow_have_finite_gradients(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([1.0, 1.0], advantages=[1.0, 1.0], logprobs=[-2000.0, 0.0])
    for loss in ON_POLICY:
        assert all(math.isfinite(x) for x in gradient(loss, outputs([0.0, -2000.0]), made))


def test_sequence_ratio_is_the_geometric_mean(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0.25] * 4, advantages=[1.0] * 2 + [-1.0] * 2, lengths=[2, 2])
    given = outputs([0.1, 0.3, -0.2, 0.0])
    first, second = math.exp(0.2), math.exp(-0.1)
    report = gspo(1.0, 1.0)(given, made)
    assert report.loss.item() == pytest.approx(-0.5 * first + 0.5 * second)
    want = [-0.25 * first] * 2 + [0.25 * second] * 2
    assert gradient(gspo(1.0, 1.0), given, made) == pytest.approx(want)
    tight = gspo(0.01, 0.01)(given, made)
    assert tight.loss.item() == pytest.approx(-0.5 * 1.01 + 0.5 * 0.99)
    assert tight.metrics["policy/clip_fraction"] == 1


def test_turn_ratio_is_the_mean_over_the_turn_of_its_own_stream(
    batch: MakeBatch, outputs: MakeOutputs
) -> None:
    made = batch(
        [0.2, 0.2, 0, 0.2, 0.2, 0.2],
        advantages=[1.0] * 6,
        lengths=[4, 2],
        turn_id=[0, 0, -1, 1, 0, 1],
    )
    given = outputs([0.1, 0.3, 9.0, -0.2, 0.5, -0.4])
    want = [math.exp(x) for x in (0.2, 0.2, -0.2, 0.5, -0.4)]
    report = gspo(1.0, 1.0, unit="turn")(given, made)
    assert report.loss.item() == pytest.approx(-0.2 * sum(want))
    assert report.metrics["policy/ratio_mean"] == pytest.approx(sum(want) / 5)


def test_cispo_clips_the_weight_and_keeps_the_gradient(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([1.0, 1.0, 1.0], advantages=[1.0, -2.0, 1.0])
    given = outputs([math.log(4.0), math.log(1.1), math.log(0.1)])
    assert gradient(cispo(0.28), given, made) == pytest.approx([-1.28, 2.2, -0.1])
    assert gradient(cispo(0.28, low=0.5), given, made) == pytest.approx([-1.28, 2.2, -0.5])
    assert cispo(0.28)(given, made).metrics["policy/clip_fraction"] == pytest.approx(1 / 3)


def split(made: Batch, given: Outputs, at: int) -> Sequence[tuple[Outputs, Batch]]:
    def cut(tensor: Tensor, where: slice) -> Tensor:
        return tensor[where]

    parts: list[tuple[Outputs, Batch]] = []
    for where in (slice(0, at), slice(at, None)):
        parts.append(
            (
                Outputs(logprobs=cut(given.logprobs, where), entropy=cut(given.entropy, where)),
                replace(
                    made,
                    sequence_id=made.sequence_id[where] - made.sequence_id[where][0],
                    lengths=made.lengths[:1] if where.start == 0 else made.lengths[1:],
                    loss_weight=made.loss_weight[where],
                    logprobs=made.logprobs[where],
                    advantages=made.advantages[where],
                    turn_id=made.turn_id[where],
                ),
            )
        )
    return parts


@pytest.mark.parametrize("loss", ON_POLICY)
def test_losses_and_metrics_of_micro_batches_add_up(
    batch: MakeBatch, outputs: MakeOutputs, loss: Loss
) -> None:
    made = batch(
        [0.1, 0.2, 0, 0.3, 0.4], advantages=[1, -2, 0, 0.5, 3], logprobs=[-1, -2, 0, -0.5, -1], lengths=[3, 2]
    )
    given = outputs([-1.3, -1.2, -5, -0.4, -1.4], entropy=[0.1, 0.2, 0.3, 0.4, 0.5])
    whole = loss(given, made)
    parts = [loss(*part) for part in split(made, given, 3)]
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item(), abs=1e-12)
    for name, number in whole.metrics.items():
        assert sum(part.metrics[name] for part in parts) == pytest.approx(number, abs=1e-6)
