import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from quintain.errors import DataError, InvariantError, UsageError
from quintain.losses.preference import (
    dmpo,
    dpo,
    hinge,
    ipo,
    kto,
    nll_of_chosen,
    orpo,
    reference_from_logprobs,
    rpo,
    simpo,
)
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


def test_advantages_of_turns_are_means_that_are_summed(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs
) -> None:
    made = batch([0, 1, 1, 0, 1, 0, 1], lengths=[5, 2], turn_id=[-1, 0, 0, -1, 1, -1, 0])
    made = pairs(made, [2, 2], [True, False], [-9, -1.0, -1.0, -9, -1.0, -9, -1.0])
    given = outputs([-50.0, -0.9, -0.7, -50, -0.5, -50, -1.0])
    for loss, margin in ((dpo(1.0), 0.9), (dpo(1.0, by_length=True), 0.3), (dpo(1.0, by_turn=True), 0.7)):
        assert loss(given, made).metrics["preference/margin"] == pytest.approx(margin)
    with pytest.raises(UsageError, match="got by_length and by_turn; give one"):
        dpo(by_length=True, by_turn=True)


def test_logged_log_probs_are_a_reference_that_stays(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs
) -> None:
    made, given = fixture(batch, pairs), outputs(CARD)
    frozen = dpo(0.1)(given, made)
    assert made.extra.reference_logprobs is not None
    made = replace(
        made, logprobs=made.extra.reference_logprobs, extra=replace(made.extra, reference_logprobs=None)
    )
    found = reference_from_logprobs(dpo(0.1))(given, made)
    assert found.loss.item() == frozen.loss.item() and found.metrics == frozen.metrics
    fresh = reference_from_logprobs(dpo(0.1))(outputs(made.logprobs.tolist()), made)
    assert fresh.loss.item() == pytest.approx(math.log(2)) and fresh.metrics["preference/margin"] == 0
    with pytest.raises(UsageError, match="reference"):
        dpo(0.1)(given, made)


@pytest.mark.parametrize(
    ("loss", "value"),
    [
        (ipo(0.1), 12.25),
        (rpo(0.1, alpha=1.0), 2.6209570478),
        (dpo(0.1, label_smoothing=0.1), 0.9 * 0.6209570478 + 0.1 * (0.6209570478 + 0.15)),
        (nll_of_chosen(), 2.0),
        (nll_of_chosen(is_summed=True), 10.0),
        (rpo(0.1, alpha=1.0, is_summed=True), 10.6209570478),
        (hinge(0.1), 0.85),
        (hinge(1.0), 0.0),
        (dpo(1.0, by_length=True), 0.4932489460),
        (ipo(0.1, by_length=True), 20.7025),
        (simpo(2.0, margin=0.5), 0.0005529315),
        (orpo(0.1), 2.0015751531),
    ],
)
def test_the_other_fixtures(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs, loss: Loss, value: float
) -> None:
    assert loss(outputs(CARD), fixture(batch, pairs)).loss.item() == pytest.approx(value, abs=1e-9)


TRL: dict[str, tuple[Loss, float, float, float]] = {
    "sigmoid": (dpo(0.1), 0.6209570477895321, -0.04625701546562505, 0.04625701546562505),
    "sigmoid_norm": (
        dpo(0.1, by_length=True),
        0.6709002842054063,
        -0.009775037961062905,
        0.02443759490265726,
    ),
    "hinge": (hinge(0.1), 0.85, -0.1, 0.1),
    "ipo": (ipo(0.1, by_length=True), 20.702499999999997, -1.82, 4.55),
    "aot": (
        dpo(0.1, label_smoothing=0.1),
        0.6359570477895321,
        -0.03625701546562505,
        0.03625701546562505,
    ),
    "simpo": (
        simpo(2.0, margin=0.5),
        0.0005529314753607964,
        -0.00022111145476943982,
        0.0005527786369235996,
    ),
    "kto": (kto(0.1), 0.48125890108900027, -0.012480021314155917, 0.012484699996403),
}
"""TRL 1.16.0 on the pair of the cards, by `Preferred` of tests/reference: value, and slopes of a chosen and a rejected
token; `aot` with label smoothing .1 is cDPO where there is one pair, `kto` is with the estimate .2."""


@pytest.mark.parametrize("name", TRL)
def test_numbers_recorded_from_trl(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs, name: str
) -> None:
    loss, value, chosen, rejected = TRL[name]
    given = outputs(CARD)
    report = loss(given, labelled(batch, pairs))
    assert report.loss.item() == pytest.approx(value, abs=1e-9)
    slopes = torch.autograd.grad(report.loss, given.logprobs)[0].tolist()
    assert slopes == pytest.approx([0] + [chosen] * 5 + [0] + [rejected] * 2, abs=1e-9)


def test_the_odds_ratio_recorded_from_trl(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    """TRL 1.16.0 computes it in float32."""
    given, made = outputs(CARD), fixture(batch, pairs)
    added = orpo(0.1)(given, made).loss - nll_of_chosen()(given, made).loss
    assert added.item() == pytest.approx(0.0015751533210277557, abs=1e-8)
    slopes = torch.autograd.grad(added, given.logprobs)[0].tolist()
    assert slopes == pytest.approx(
        [0] + [-0.00036148405633866786] * 5 + [0] + [0.0007833480485714972] * 2, abs=1e-9
    )


def test_how_strongly_pairs_and_likelihood_pull(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs
) -> None:
    """The published code of IPR sums the likelihood, which then outweighs the pair fifteen times."""
    pulls: list[float] = []
    for is_summed in (False, True):
        report = rpo(0.1, is_summed=is_summed)(outputs(CARD), fixture(batch, pairs))
        metrics = report.metrics
        assert metrics["preference/pair_gradient"] == pytest.approx(7 * 0.0462570155, abs=1e-8)
        pulls.append(metrics["preference/nll_gradient"] / metrics["preference/pair_gradient"])
    assert pulls == pytest.approx([3.0883346, 15.4416731], abs=1e-6)
    measured = rpo()(replace(outputs(CARD), logprobs=torch.tensor(CARD)), fixture(batch, pairs)).metrics
    assert "preference/nll_gradient" not in measured, "an evaluation has no gradient"


def labelled(batch: MakeBatch, pairs: MakePairs, *, kl: float | None = 0.2) -> Batch:
    """The fixture, each episode of which counts a half."""
    made = fixture(batch, pairs)
    weight = torch.tensor([0] + [0.1] * 5 + [0] + [0.25] * 2, dtype=torch.float64)
    return replace(made, loss_weight=weight, extra=replace(made.extra, kl=kl))


def test_kto_fixture_of_the_cards(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    made, given = labelled(batch, pairs), outputs(CARD)
    report = kto(0.1)(given, made)
    assert report.loss.item() == pytest.approx((0.4800106598 + 0.4825071423) / 2, abs=1e-9)
    slopes = torch.autograd.grad(report.loss, given.logprobs)[0].tolist()
    good, bad = 0.05 * 0.4800106598 * 0.5199893402, 0.05 * 0.4825071423 * 0.5174928577
    assert slopes == pytest.approx([0] + [-good] * 5 + [0] + [bad] * 2, abs=1e-9)
    assert report.metrics == {
        "preference/loss": pytest.approx(0.48125890105),
        "preference/accuracy": pytest.approx(1.0),
        "preference/chosen_log_ratio": pytest.approx(0.5),
        "preference/rejected_log_ratio": pytest.approx(-0.25),
        "preference/kl": pytest.approx(0.2),
    }


def test_weights_of_kto_and_an_estimate_below_zero(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs
) -> None:
    alone = kto(0.1, desirable=0.0, undesirable=2.0)(outputs(CARD), labelled(batch, pairs))
    assert alone.loss.item() == pytest.approx(0.4825071423, abs=1e-9)
    below = kto(0.1)(outputs(CARD), labelled(batch, pairs, kl=-3.0))
    assert below.loss.item() == kto(0.1)(outputs(CARD), labelled(batch, pairs, kl=0.0)).loss.item()


def test_an_episode_of_kto_needs_no_partner(batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs) -> None:
    made = pairs(batch([0.5, 0.5], lengths=[1, 1]), [-1, -1], [False, False], [-1.0, -2.0])
    made = replace(made, extra=replace(made.extra, kl=0.0))
    assert kto(0.1)(outputs([-1.0, -2.0]), made).loss.item() == pytest.approx(0.5)


ENDS = [False] * 5 + [True, False, False, True]


@pytest.mark.parametrize(
    ("whole", "inside"),
    [
        (dpo(0.1), dpo(0.1, compares_ends=False)),
        (ipo(0.1), ipo(0.1, compares_ends=False)),
        (hinge(0.1), hinge(0.1, compares_ends=False)),
        (dmpo(0.1), dmpo(0.1, compares_ends=False)),
        (kto(0.1), kto(0.1, compares_ends=False)),
    ],
)
def test_ends_of_turns_are_compared_or_not(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs, whole: Loss, inside: Loss
) -> None:
    made = labelled(batch, pairs)
    made = replace(made, extra=replace(made.extra, turn_end=torch.tensor(ENDS)))
    given = outputs(CARD)
    for loss, has_ends in ((whole, True), (inside, False)):
        (slopes,) = torch.autograd.grad(loss(given, made).loss, given.logprobs, retain_graph=True)
        assert (slopes[torch.tensor(ENDS)].abs() > 0).tolist() == [has_ends, has_ends]
        assert (slopes[1:5].abs() > 0).all()
    said = dpo(0.1, compares_ends=False)(given, made).metrics
    assert said["preference/margin"] == pytest.approx(-4.0), "the last rejected token is -5.5"
    assert said["preference/chosen_log_ratio"] == 1.0, "what is measured is the whole side"


@pytest.mark.parametrize("loss", [simpo(), orpo()])
def test_comparisons_without_a_reference(
    batch: MakeBatch, outputs: MakeOutputs, pairs: MakePairs, loss: Loss
) -> None:
    made = pairs(batch([0.1] * 3, lengths=[2, 1]), [0, 0], [True, False], None)
    metrics = loss(outputs([-1.0, -3.0, -4.0]), made).metrics
    assert (metrics["preference/chosen_logprob"], metrics["preference/rejected_logprob"]) == (-2.0, -4.0)
    assert "preference/chosen_log_ratio" not in metrics


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


@pytest.mark.parametrize("loss", [dpo(), ipo(), dmpo(), nll_of_chosen()])
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
    with pytest.raises(UsageError, match="weights of KTO: got -1"):
        kto(desirable=-1)
    with pytest.raises(UsageError, match="KL estimate of the batch: got none; set has_kl"):
        kto()(outputs(CARD), labelled(batch, pairs, kl=None))
    made = pairs(batch([0.1, 0.1], lengths=[1, 1]), [0, 0], [True, False], None)
    with pytest.raises(UsageError, match="reference policy"):
        dpo()(outputs([-1.0, -1]), made)
