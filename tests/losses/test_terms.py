import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import pytest
import torch
from torch import Tensor

from quintain.errors import UsageError
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.imitation import imitate_weighted, imitation
from quintain.losses.importance import mask_importance, truncate_importance, truncate_weights
from quintain.losses.kl import adapt_coefficient, kl_estimate, kl_penalty
from quintain.losses.policy import clip_ratio, gspo, reinforce
from quintain.losses.value import value
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
    return torch.autograd.grad(loss(outputs, batch).loss, outputs.logprobs)[0].tolist()


def with_reference(made: Batch, reference: Tensor) -> Batch:
    return replace(made, extra=replace(made.extra, reference_logprobs=reference))


# imitation


def test_imitation_is_the_mean_negative_log_likelihood(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0, 0.25, 0.25, 0.5], advantages=[9, 9, 9, 9])
    given = outputs([-7, -1, -2, -0.5], entropy=[9, 1, 1, 1])
    report = imitation()(given, made)
    assert report.loss.item() == pytest.approx(1.0)
    assert report.metrics == {"imitation/nll": pytest.approx(3.5 / 3), "imitation/entropy": 1}
    assert gradient(imitation(), given, made) == [0, -0.25, -0.25, -0.5]


def test_weighted_imitation_reads_the_advantage(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0.5, 0.5], advantages=[2.0, 0.0])
    report = imitate_weighted()(outputs([-1.0, -3.0]), made)
    assert report.loss.item() == 1
    assert report.metrics["imitation/weight"] == 1 and report.metrics["imitation/nll"] == 2
    ones = replace(made, advantages=torch.ones(2, dtype=torch.float64))
    assert imitate_weighted()(outputs([-1.0, -3.0]), ones).loss.item() == 2
    assert gradient(imitate_weighted(), outputs([-1.0, -3.0]), ones) == gradient(
        imitation(), outputs([-1.0, -3.0]), ones
    )


# Kullback-Leibler


def test_kl_fixtures() -> None:
    new, reference = torch.tensor([-1.0]), torch.tensor([-1.5])
    assert float(kl_estimate(new, reference, "k1")) == 0.5
    assert float(kl_estimate(new, reference, "k2")) == 0.125
    assert float(kl_estimate(new, reference)) == pytest.approx(0.1065306597)
    assert float(kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.2]))) == pytest.approx(0.01873, abs=1e-5)


REFERENCE = torch.log_softmax(torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.5, 2.0]], dtype=torch.float64), -1)


def reverse_kl(p: Tensor) -> Tensor:
    return (p * (p.log() - REFERENCE)).sum()


def test_kl_gradients_on_policy(toy: Toy) -> None:
    made = with_reference(toy.batch(), REFERENCE.flatten())
    forward = toy.exact(lambda p: -(REFERENCE.exp() * p.log()).sum())
    assert torch.allclose(toy.gradient(kl_penalty("k2"), made), toy.exact(reverse_kl), atol=1e-12)
    assert torch.allclose(toy.gradient(kl_penalty("k3"), made), forward, atol=1e-12)
    assert torch.allclose(
        toy.gradient(kl_penalty("k1"), made), torch.zeros(2, 3, dtype=torch.float64), atol=1e-12
    )


@pytest.mark.parametrize("loss", [kl_penalty("k2"), kl_penalty("k3")])
def test_a_step_on_the_penalty_alone_moves_to_the_reference(toy: Toy, loss: Loss) -> None:
    made = with_reference(toy.batch(), REFERENCE.flatten())
    after = torch.softmax(toy.theta - 0.1 * toy.gradient(loss, made), -1)
    assert float(reverse_kl(after)) < float(reverse_kl(toy.behaviour.exp()))


def test_kl_in_the_reward_has_the_gradient_of_the_divergence(toy: Toy) -> None:
    made = replace(toy.batch(), advantages=-(toy.behaviour - REFERENCE).flatten())
    assert torch.allclose(toy.gradient(reinforce(), made), toy.exact(reverse_kl), atol=1e-12)


def test_expected_estimates_are_the_divergence(toy: Toy) -> None:
    p = toy.behaviour.exp()
    for estimator in ("k1", "k3"):
        mean = (p * kl_estimate(toy.behaviour, REFERENCE, estimator)).sum()
        assert float(mean) == pytest.approx(float(reverse_kl(p)))


def test_kl_reports_both(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = with_reference(batch([0, 0.5, 0.5]), torch.tensor([0, -1.5, -1.0], dtype=torch.float64))
    report = kl_penalty("k1")(outputs([9.0, -1.0, -1.0]), made)
    assert report.loss.item() == 0.25
    assert report.metrics["kl/penalty"] == 0.25
    assert report.metrics["kl/reference"] == pytest.approx(0.0532653)


def test_kl_needs_a_reference_and_a_known_estimator(batch: MakeBatch, outputs: MakeOutputs) -> None:
    with pytest.raises(UsageError, match="reference policy"):
        kl_penalty()(outputs([-1.0]), batch([1.0]))
    with pytest.raises(UsageError, match="choose from k1, k2, k3"):
        kl_penalty("k4")  # type: ignore[arg-type]


def test_adapted_coefficient_fixtures() -> None:
    assert adapt_coefficient(0.2, 12, target=6, num=64) == pytest.approx(0.200256)
    assert adapt_coefficient(0.2, 5.4, target=6, num=64) == pytest.approx(0.199872)
    assert adapt_coefficient(0.2, 0, target=6, num=64) == pytest.approx(0.2 * (1 - 0.2 * 0.0064))
    assert adapt_coefficient(0.2, 6, target=6, num=64) == 0.2


# value


def test_value_loss_by_hand(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0, 0.5, 0.5], returns=[9, 1.0, 0.0])
    values = torch.tensor([5.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    given = replace(outputs([0, 0, 0]), values=values)
    report = value()(given, made)
    assert report.loss.item() == pytest.approx((0.5 * 0.25 + 0.5 * 4) / 2)
    assert torch.autograd.grad(report.loss, values)[0].tolist() == [0, -0.25, 1.0]
    assert report.metrics == {"value/squared_error": 2.125, "value/mean": 1.25, "value/clip_fraction": 0}


def test_value_clip_is_pessimistic(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([1.0, 1.0], returns=[1.0, 1.0])
    made = replace(made, extra=replace(made.extra, values=torch.tensor([0.0, 0.0], dtype=torch.float64)))
    values = torch.tensor([0.9, -0.9], dtype=torch.float64, requires_grad=True)
    report = value(clip=0.2)(replace(outputs([0, 0]), values=values), made)
    assert report.loss.item() == pytest.approx((0.8**2 + 1.9**2) / 2)
    assert torch.autograd.grad(report.loss, values)[0].tolist() == pytest.approx([0, -1.9])
    assert report.metrics["value/clip_fraction"] == 0.5
    wide = value(clip=10.0)(replace(outputs([0, 0]), values=values), made)
    assert wide.loss.item() == pytest.approx((0.1**2 + 1.9**2) / 2)


def test_an_expectile_weighs_the_sides_of_v_and_leaves_q(batch: MakeBatch, outputs: MakeOutputs) -> None:
    """Targets above, below, and below after a turn: weights 2τ, 2(1 - τ) and 1."""
    made = batch([1.0, 1.0, 1.0], returns=[1.0, -1.0, -1.0])
    made = replace(made, extra=replace(made.extra, turn_end=torch.tensor([False, False, True])))
    values = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    given = replace(outputs([0, 0, 0]), values=values)
    report = value(expectile=0.9)(given, made)
    assert report.loss.item() == pytest.approx((1.8 + 0.2 + 1.0) / 2)
    assert torch.autograd.grad(report.loss, values)[0].tolist() == pytest.approx([-1.8, 0.2, 1.0])
    assert value(expectile=0.5)(given, made).loss.item() == pytest.approx(value()(given, made).loss.item())


def test_the_value_loss_needs_values(batch: MakeBatch, outputs: MakeOutputs) -> None:
    with pytest.raises(UsageError, match="value head"):
        value()(outputs([0.0]), batch([1.0]))
    given = replace(outputs([0.0]), values=torch.zeros(1, dtype=torch.float64))
    with pytest.raises(UsageError, match="values at collection"):
        value(clip=0.2)(given, batch([1.0]))


# entropy


def test_the_bonus_raises_entropy(toy: Toy) -> None:
    def entropy(p: Tensor) -> Tensor:
        return -(p * p.log()).sum()

    assert torch.allclose(toy.gradient(entropy_bonus()), -toy.exact(entropy), atol=1e-12)
    after = torch.softmax(toy.theta - 0.1 * toy.gradient(entropy_bonus()), -1)
    assert float(entropy(after)) > float(entropy(toy.behaviour.exp()))


def test_entropy_by_token(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made, given = batch([0, 0.5, 0.5]), outputs([0, 0, 0], entropy=[7, 2, 4])
    assert entropy_bonus()(given, made).loss.item() == -3
    weighted = entropy_bonus(lambda batch: torch.tensor([1.0, 1.0, 0.0], dtype=batch.loss_weight.dtype))
    report = weighted(given, made)
    assert report.loss.item() == -1 and report.metrics == {"entropy/bonus": 1}


# combination


def test_combine_adds_with_coefficients(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made, given = batch([0.5, 0.5], advantages=[1.0, 1.0]), outputs([-1.0, -2.0], entropy=[2.0, 2.0])
    loss = combine((reinforce(), 2.0), (entropy_bonus(), 0.1), (imitation(), 0.5))
    report = loss(given, made)
    assert report.loss.item() == pytest.approx(2 * 1.5 - 0.1 * 2 + 0.5 * 1.5)
    assert {"policy/loss", "entropy/bonus", "imitation/nll"} <= report.metrics.keys()
    assert gradient(loss, given, made) == pytest.approx([-1.25, -1.25])
    alone = combine((clip_ratio(), 1.0))(given, made)
    assert alone.metrics == clip_ratio()(given, made).metrics


def test_combine_refuses_nothing_and_clashes(batch: MakeBatch, outputs: MakeOutputs) -> None:
    with pytest.raises(UsageError, match="got none"):
        combine()
    with pytest.raises(UsageError, match="policy/approx_kl twice"):
        combine((reinforce(), 1.0), (clip_ratio(), 1.0))(outputs([-1.0]), batch([1.0]))


# importance


def test_truncated_importance_by_hand(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0, 0.5, 0.5], advantages=[1, 1.0, 1.0], logprobs=[0, -1.0, -1.0])
    given = outputs([-9.0, -1 + math.log(0.5), -1 + math.log(8.0)])
    loss = truncate_importance(reinforce(), cap=2.0)
    assert gradient(loss, given, made) == pytest.approx([0, -0.25, -1.0])
    metrics = loss(given, made).metrics
    assert metrics["importance/weight"] == pytest.approx(1.25)
    assert metrics["importance/capped_fraction"] == 0.5


def test_truncated_weights_by_hand() -> None:
    learner = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    sampler = torch.tensor([-1.0 - math.log(3.0), -1.0, -1.0 + math.log(4.0)])
    weights = truncate_weights(learner - sampler, cap=2.0)
    assert weights.tolist() == pytest.approx([2.0, 1.0, 0.25])
    assert not weights.requires_grad


def test_truncated_to_infinity_is_the_policy_gradient_off_policy(toy: Toy) -> None:
    toy.theta = toy.theta + torch.tensor([[0.5, 0.0, -0.5], [0.0, 1.0, 0.0]], dtype=torch.float64)
    want = -toy.exact(lambda p: (p * toy.advantages).sum())
    assert torch.allclose(toy.gradient(truncate_importance(reinforce(), cap=1e9)), want, atol=1e-12)


def test_masked_importance_drops_whole_units(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([0.25] * 4, advantages=[1.0] * 4, lengths=[2, 2])
    given = outputs([math.log(9.0), 0.0, math.log(1.2), 0.0])
    token = mask_importance(reinforce(), high=5.0)
    assert gradient(token, given, made) == [0, -0.25, -0.25, -0.25]
    assert token(given, made).metrics["importance/masked_fraction"] == 0.25
    sequence = mask_importance(reinforce(), high=2.0, unit="sequence")
    assert gradient(sequence, given, made) == [0, 0, -0.25, -0.25]
    assert gradient(mask_importance(reinforce(), low=1.05, unit="turn"), given, made) == [-0.25] * 4


def test_decoupled_from_the_sampler(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch([1.0], advantages=[1.0], logprobs=[-1.0])
    given = outputs([-1 + math.log(1.5)])

    def start(batch: Batch) -> Tensor:
        return batch.logprobs + math.log(1.4)

    loss = truncate_importance(clip_ratio(), cap=2.0, proximal=start)
    assert loss(given, made).loss.item() == pytest.approx(-1.4 * 1.5 / 1.4)
    assert loss(given, made).metrics["policy/ratio_mean"] == pytest.approx(1.5 / 1.4)
    masked = mask_importance(clip_ratio(), high=1.3, proximal=start)
    assert masked(given, made).loss.item() == 0


# edges and limits of all of them


@pytest.mark.parametrize(
    "loss",
    [
        imitation(),
        imitate_weighted(),
        kl_penalty("k1"),
        kl_penalty("k2"),
        kl_penalty("k3"),
        value(),
        value(clip=0.2),
        entropy_bonus(),
        entropy_bonus(lambda batch: torch.ones_like(batch.loss_weight)),
        truncate_importance(reinforce()),
        mask_importance(reinforce(), unit="turn"),
        combine((clip_ratio(), 1.0), (value(), 0.5), (entropy_bonus(), 0.1)),
    ],
)
def test_without_a_trained_token_nothing_is_lost_and_no_nan_leaks(
    loss: Loss, batch: MakeBatch, outputs: MakeOutputs
) -> None:
    made = batch(
        [0.0, 0.0, 0.0], advantages=[math.nan, 1, 1], returns=[math.nan, 1, 1], logprobs=[math.nan, -1, -1]
    )
    extra = replace(made.extra, num_trained=4, values=torch.full((3,), math.nan, dtype=torch.float64))
    made = with_reference(replace(made, extra=extra), torch.full((3,), math.nan, dtype=torch.float64))
    given = replace(
        outputs([math.nan, -1.0, -2.0], entropy=[math.nan, 1, 1]), values=made.extra.reference_logprobs
    )
    report = loss(given, made)
    assert report.loss.item() == 0
    assert set(report.metrics.values()) == {0.0}


def test_limits_in_which_one_loss_is_another(batch: MakeBatch, outputs: MakeOutputs) -> None:
    made = batch(
        [0.25] * 4, advantages=[1.0, -2.0, 3.0, -0.5], logprobs=[-1.0, -2.0, -0.5, -3.0], lengths=[1] * 4
    )
    given = outputs([-0.7, -1.0, -0.9, -1.5])
    pairs: list[tuple[Loss, Loss]] = [
        (clip_ratio(dual=1e9), clip_ratio()),
        (gspo(0.2, 0.2), clip_ratio(0.2, 0.2)),
        (mask_importance(reinforce(), low=0.0, high=1e9), reinforce()),
        (combine((clip_ratio(), 1.0), (entropy_bonus(), 0.0)), clip_ratio()),
    ]
    for one, other in pairs:
        assert gradient(one, given, made) == pytest.approx(gradient(other, given, made))
    at_reference = with_reference(made, given.logprobs.detach())
    for estimator in ("k2", "k3"):
        report = kl_penalty(estimator)(given, at_reference)
        assert report.loss.item() == 0
        assert gradient(kl_penalty(estimator), given, at_reference) == [0.0] * 4
