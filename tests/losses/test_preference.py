import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from quintain.errors import DataError, InvariantError, UsageError
from quintain.losses.preference import chosen_nll, dmpo, dpo, ipo, rpo
from quintain.types import Batch, Loss, Outputs

MakeBatch = Callable[..., Batch]
MakePairs = Callable[..., Batch]
MakeOutputs = Callable[..., Outputs]


def fixture(batch: MakeBatch, pairs: MakePairs) -> Batch:
    """The chosen side: 5 tokens, -11 in all under the reference; the rejected side: 2 tokens, -11.5."""
    made = batch([0] + [0.1] * 5 + [0] + [0.1] * 2, lengths=[6, 3])
    reference = [-99, -3, -2, -2, -2, -2, -99, -11, -0.5]
    return pairs(made, [4, 4], [True, False], reference)


CARD = [-50.0, -2, -2, -2, -2, -2, -70, -6, -6]


def test_dpo_fixture_of_the_cards(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    made, given = fixture(batch, pairs), outputs(CARD)
    report = dpo(0.1)(given, made)
    assert report.loss.item() == pytest.approx(0.6209570478, abs=1e-9)
    slopes = torch.autograd.grad(report.loss, given.logprobs)[0].tolist()
    assert slopes == pytest.approx([0] + [-0.0462570155] * 5 + [0] + [0.0462570155] * 2, abs=1e-9)
    assert report.metrics == {
        "preference/loss": pytest.approx(0.6209570478),
        "preference/accuracy": 1,
        "preference/margin": 1.5,
        "preference/chosen_log_ratio": 1.0,
        "preference/rejected_log_ratio": -0.5,
    }


@pytest.mark.parametrize(
    ("loss", "value"),
    [
        (ipo(0.1), 12.25),
        (rpo(0.1, alpha=1.0), 2.6209570478),
        (dpo(0.1, label_smoothing=0.1), 0.9 * 0.6209570478 + 0.1 * (0.6209570478 + 0.15)),
        (chosen_nll(), 2.0),
    ],
)
def test_the_other_fixtures(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs, loss: Loss, value: float
) -> None:
    assert loss(outputs(CARD), fixture(batch, pairs)).loss.item() == pytest.approx(value, abs=1e-9)


def test_at_the_reference_it_is_log_two(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    report = dpo()(outputs([-99.0, -3, -2, -2, -2, -2, -99, -11, -0.5]), fixture(batch, pairs))
    assert report.loss.item() == pytest.approx(math.log(2), abs=1e-12)
    assert report.metrics["preference/accuracy"] == 0


def test_the_weights_of_the_batch_do_not_scale_it(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs
) -> None:
    made = fixture(batch, pairs)
    doubled = replace(made, loss_weight=2 * made.loss_weight)
    assert dpo()(outputs(CARD), doubled).loss.item() == dpo()(outputs(CARD), made).loss.item()


def test_a_side_is_all_of_its_streams(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    made = batch([0.1] * 3, lengths=[1, 1, 1])
    report = dpo(1.0)(outputs([-1.0, -2, -5]), pairs(made, [0, 0, 0], [True, True, False], [-2.0, -2.5, -5]))
    assert report.metrics["preference/margin"] == 1.5


def test_micro_batches_of_pairs_add_up(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    def make(sides: list[int], logprobs: list[float]) -> float:
        made = batch([0.1] * len(sides), lengths=[1] * len(sides))
        made = pairs(made, sides, [True, False] * (len(sides) // 2), [0.0] * len(sides))
        made = replace(made, extra=replace(made.extra, num_pairs=2))
        return rpo()(outputs(logprobs), made).loss.item()

    whole = make([3, 3, 8, 8], [-1.0, -2, -3, -1])
    assert make([3, 3], [-1.0, -2]) + make([8, 8], [-3.0, -1]) == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize(
    ("num_turns", "expected"),
    [(2, [1, 0.411765]), (3, [1, 0.543379, 0.223744]), (4, [1, 0.605211, 0.328859, 0.135413])],
)
def test_turn_weights_of_dmpo(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs, num_turns: int, expected: list[float]
) -> None:
    for turn in range(num_turns):
        turns = [*range(num_turns), 0]
        made = batch([0.1] * (num_turns + 1), lengths=[num_turns, 1], turn_id=turns)
        made = pairs(made, [0, 0], [True, False], [0.0] * (num_turns + 1))
        logprobs = [float(k == turn) for k in range(num_turns)] + [0.0]
        report = dmpo(discount=0.7)(outputs(logprobs), made)
        assert report.metrics["preference/margin"] == pytest.approx(expected[turn], abs=1e-6)
        limit = dmpo(discount=1.0)(outputs(logprobs), made)
        assert limit.metrics["preference/margin"] == pytest.approx((num_turns - turn) / num_turns)


def test_dmpo_fixture_of_the_cards(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    made = batch([0.1] * 5, lengths=[3, 2], turn_id=[0, 1, 2, 0, 1])
    made = pairs(made, [0, 0], [True, False], [-1.5, -2, -2.5, -2, -3])
    report = dmpo(0.1, discount=0.7)(outputs([-1.0, -2, -3, -2, -4]), made)
    assert report.metrics["preference/margin"] == pytest.approx(0.7998925598, abs=1e-6)
    assert report.loss.item() == pytest.approx(0.6539521246, abs=1e-7)


def test_dpo_finds_the_regularised_optimum(batch: MakeBatch, pairs: MakePairs) -> None:
    """If a wins 3 of 4 against b, the optimum is the reference times exp(reward / beta), with
    rewards log 3 apart.
    """
    beta, reference = 0.5, torch.log_softmax(torch.tensor([0.1, 0.5], dtype=torch.float64), -1)
    actions = [0, 1, 0, 1, 0, 1, 1, 0]
    made = batch([0.1] * 8, lengths=[1] * 8)
    made = pairs(made, [0, 0, 1, 1, 2, 2, 3, 3], [True, False] * 4, reference[actions].tolist())
    theta = reference.clone().requires_grad_()
    for _ in range(200):
        logprobs = torch.log_softmax(theta, -1)[actions]
        loss = dpo(beta)(Outputs(logprobs=logprobs, entropy=torch.zeros(8)), made).loss
        (slope,) = torch.autograd.grad(loss, theta)
        theta = (theta - 8 * slope).detach().requires_grad_()
    want = torch.softmax(reference + torch.tensor([math.log(3), 0.0]) / beta, -1)
    assert torch.allclose(torch.softmax(theta.detach(), -1), want, atol=1e-6)


@pytest.mark.parametrize("loss", [dpo(), ipo(), dmpo(), chosen_nll()])
def test_half_a_pair_is_an_error(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs, loss: Loss
) -> None:
    made = batch([0.1, 0.1, 0.1], lengths=[1, 1, 1])
    with pytest.raises(InvariantError, match="both sides of pair 5"):
        loss(outputs([-1.0, -1, -1]), pairs(made, [2, 2, 5], [True, False, True], [0.0] * 3))
    masked = batch([0.1, 0.0], lengths=[1, 1])
    with pytest.raises(InvariantError, match="both sides of pair 2"):
        loss(outputs([-1.0, -1]), pairs(masked, [2, 2], [True, False], [0.0] * 2))


def test_streams_outside_of_pairs_are_refused(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs
) -> None:
    made = pairs(batch([0.1, 0.1], lengths=[1, 1]), [-1, 0], [False, True], [0.0, 0.0])
    with pytest.raises(DataError, match="outside of any pair"):
        dpo()(outputs([-1.0, -1]), made)


def test_bad_settings_and_a_missing_reference(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs
) -> None:
    with pytest.raises(UsageError, match="beta"):
        ipo(0)
    with pytest.raises(UsageError, match="label smoothing"):
        dpo(label_smoothing=0.5)
    made = pairs(batch([0.1, 0.1], lengths=[1, 1]), [0, 0], [True, False], None)
    with pytest.raises(UsageError, match="reference policy"):
        dpo()(outputs([-1.0, -1]), made)
