"""The loss of reward models against closed forms, by value and gradient."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

from quintain.errors import DataError, InvariantError, UsageError
from quintain.losses.reward_model import bradley_terry, classification
from quintain.types import Batch, LossReport, Outputs


def compared(
    make: Callable[..., Batch], pair: Sequence[int], ranks: Sequence[float], marks: Sequence[int] = ()
) -> Batch:
    """One stream an answer, each of two tokens, of which the second is scored (both, where `marks` says 2)."""
    weight = [w for count in marks or [1] * len(pair) for w in ((1.0, 1.0) if count == 2 else (0.0, 1.0))]
    base = make(weight, lengths=[2] * len(pair))
    extra = replace(base.extra, pair=torch.tensor(pair), rank=torch.tensor(ranks), num_pairs=len(set(pair)))
    return replace(base, extra=extra)


def scored(scores: Sequence[float]) -> tuple[Outputs, Tensor]:
    """Values of two tokens an answer; the first is no score and must not count."""
    values = torch.tensor([v for s in scores for v in (99.0, s)], dtype=torch.float64, requires_grad=True)
    return Outputs(logprobs=torch.zeros_like(values), entropy=torch.zeros_like(values), values=values), values


def gradient(report: LossReport, values: Tensor) -> list[float]:
    return torch.autograd.grad(report.loss, values)[0].view(-1, 2)[:, 1].tolist()


def test_three_ranked_answers_are_the_mean_over_their_pairs(batch: Callable[..., Batch]) -> None:
    outputs, _ = scored([2.0, 1.0, 0.0])
    report = bradley_terry()(outputs, compared(batch, [0, 0, 0], [2.0, 1.0, 0.0]))
    assert report.loss.item() == pytest.approx(0.2511504620, abs=1e-9)
    assert report.metrics["reward_model/accuracy"] == 1.0
    assert report.metrics["reward_model/margin"] == pytest.approx(4 / 3)


def test_two_answers_are_the_loss_of_a_pair_with_its_gradient(batch: Callable[..., Batch]) -> None:
    outputs, values = scored([3.0, 2.0])
    report = bradley_terry()(outputs, compared(batch, [0, 0], [1.0, 0.0]))
    assert report.loss.item() == pytest.approx(0.3132616875, abs=1e-9)
    assert gradient(report, values) == pytest.approx([-0.2689414214, 0.2689414214])


def test_labels_that_are_believed_to_be_a_coins_now_and_then(batch: Callable[..., Batch]) -> None:
    outputs, values = scored([3.0, 2.0])
    report = bradley_terry(error_rate=0.1)(outputs, compared(batch, [0, 0], [1.0, 0.0]))
    assert report.loss.item() == pytest.approx(-torch.tensor(0.7079527).log().item(), abs=1e-6)
    assert gradient(report, values)[0] == pytest.approx(-0.9 * 0.7310586 * 0.2689414 / 0.7079527, abs=1e-6)
    with pytest.raises(UsageError, match="error rate of labels: got 1"):
        bradley_terry(error_rate=1)


def test_a_tie_pulls_scores_together_and_rests_where_they_are_equal(batch: Callable[..., Batch]) -> None:
    loss = bradley_terry()
    outputs, values = scored([1.0, 1.0])
    report = loss(outputs, compared(batch, [0, 0], [0.0, 0.0]))
    assert report.loss.item() == pytest.approx(0.6931471806) and gradient(report, values) == [0.0, 0.0]
    assert report.metrics["reward_model/accuracy"] == 0.5
    outputs, values = scored([2.0, 1.0])
    assert gradient(loss(outputs, compared(batch, [0, 0], [0.0, 0.0])), values)[0] > 0


def test_comparisons_count_alike_whatever_their_size(batch: Callable[..., Batch]) -> None:
    torch.manual_seed(0)
    scores = torch.randn(7, dtype=torch.float64).tolist()
    pair, ranks = [0, 0, 0, 0, 1, 1, 1], [3.0, 1.0, 2.0, 0.0, 0.0, 2.0, 1.0]
    outputs, values = scored(scores)
    report = bradley_terry()(outputs, compared(batch, pair, ranks))
    own = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    total = own.new_zeros(())
    for members in (range(4), range(4, 7)):
        both = list(combinations(members, 2))
        for i, j in both:
            above, below = (i, j) if ranks[i] > ranks[j] else (j, i)
            total = total - torch.log(torch.sigmoid(own[above] - own[below])) / len(both) / 2
    assert report.loss.item() == pytest.approx(total.item())
    assert gradient(report, values) == pytest.approx(torch.autograd.grad(total, own)[0].tolist())


def test_micro_batches_add_up_to_the_step(batch: Callable[..., Batch]) -> None:
    loss, scores, ranks = bradley_terry(), [0.3, -1.0, 0.5, 2.0], [1.0, 0.0, 0.0, 1.0]
    whole = loss(scored(scores)[0], compared(batch, [0, 0, 1, 1], ranks)).loss.item()
    parts = 0.0
    for at in (0, 2):
        part = compared(batch, [at, at], ranks[at : at + 2])
        part = replace(part, extra=replace(part.extra, num_pairs=2))
        parts += loss(scored(scores[at : at + 2])[0], part).loss.item()
    assert parts == pytest.approx(whole)


def test_scores_of_turns_add_up(batch: Callable[..., Batch]) -> None:
    values = torch.tensor([1.0, 2.0, 0.5, 1.5], dtype=torch.float64, requires_grad=True)
    outputs = Outputs(logprobs=torch.zeros(4), entropy=torch.zeros(4), values=values)
    report = bradley_terry()(outputs, compared(batch, [0, 0], [1.0, 0.0], marks=[2, 2]))
    assert report.loss.item() == pytest.approx(0.3132616875, abs=1e-9)  # sums 3 and 2


def test_what_no_reward_model_learns_from_is_an_error(batch: Callable[..., Batch]) -> None:
    loss, (outputs, _) = bradley_terry(), scored([1.0, 0.0])
    with pytest.raises(UsageError, match="got a model without a value head"):
        loss(replace(outputs, values=None), compared(batch, [0, 0], [1.0, 0.0]))
    with pytest.raises(DataError, match="outside of any comparison"):
        loss(outputs, compared(batch, [0, -1], [1.0, 0.0]))
    with pytest.raises(InvariantError, match="never split a comparison"):
        loss(outputs, compared(batch, [0, 1], [1.0, 0.0]))


def test_a_classifier_judges_each_answer_by_itself(batch: Callable[..., Batch]) -> None:
    outputs, values = scored([2.0, -1.0])
    report = classification()(outputs, compared(batch, [0, 0], [1.0, 0.0]))
    assert report.loss.item() == pytest.approx(0.2200948, abs=1e-6)
    assert gradient(report, values) == pytest.approx([-0.0596015, 0.1344707], abs=1e-6)
    assert report.metrics["reward_model/accuracy"] == 1.0
    assert report.metrics["reward_model/margin"] == pytest.approx(1.5)


def test_a_classifiers_comparisons_count_alike_and_all_may_be_bad(batch: Callable[..., Batch]) -> None:
    outputs, values = scored([0.0, 0.0, 0.0, 0.0])
    report = classification()(outputs, compared(batch, [0, 0, 0, 1], [0.0, 0.0, 0.0, 1.0]))
    assert report.loss.item() == pytest.approx(torch.tensor(2.0).log().item(), abs=1e-6)
    assert gradient(report, values) == pytest.approx([1 / 12, 1 / 12, 1 / 12, -1 / 4])
    assert report.metrics["reward_model/accuracy"] == 0.0
    with pytest.raises(UsageError, match="without a value head"):
        classification()(replace(outputs, values=None), compared(batch, [0, 0], [1.0, 0.0]))
