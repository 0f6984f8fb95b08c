"""L = -1/C(K,2) Σ_{i above j} log σ(r_i - r_j): a reward model of comparisons (Bradley and Terry), or a classifier.

The mean over the comparisons of a step of the mean over the pairs of a comparison: for two answers the loss of Learning
to Summarize (arXiv 2009.01325, section 3.4), for K that of InstructGPT (2203.02155, eq. 1), whose answers stand in the
batch once each. A tie is half a preference either way (WebGPT, 2112.09332): log 2 and no gradient at equal scores. The
score r of an answer is the sum of the values of its trained tokens, which `quintain.data.comparisons` puts where it is
read. A classifier says of each answer by itself whether it is good: σ(r) is how likely that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quintain.errors import DataError, InvariantError, UsageError
from quintain.losses.measure import is_trained, numbers
from quintain.losses.preference import log_sigmoid
from quintain.types import Batch, Loss, LossReport, Outputs

if TYPE_CHECKING:
    from torch import Tensor


def bradley_terry(*, error_rate: float = 0.0) -> Loss:
    """Return the mean of -μ log P - (1-μ) log(1-P) over pairs, P = (1-ε)·σ(r_i - r_j) + ε/2, ε = `error_rate`.

    μ is 1 where i is ranked above j, a half where they tie. With ε the labels are believed to be a coin's as often
    (arXiv 1706.03741, section 2.2.3). Example: scores 2, 1, 0 ranked so → .2511504620; two answers with 3 and 2, ε 0
    → .3132616875, ε .1 → .3453780.

    ``reward_model/accuracy`` is the share of preferences that the scores agree with, where a tie counts a half.
    """
    if not 0 <= error_rate < 1:
        raise UsageError(f"error rate of labels: got {error_rate}; give a share from 0 to below 1")

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        scores, ranks, together = _answers(outputs, batch)
        if (sizes := together.sum(1)).min() < 2:
            raise InvariantError(
                "answers of a comparison: got one alone in its micro-batch; never split a comparison"
            )
        one, other = together.triu(diagonal=1).nonzero().unbind(1)
        share = 2.0 / (sizes * (sizes - 1)).to(scores.dtype)[one]
        wanted = (1 + (ranks[one] - ranks[other]).sign()) / 2
        delta = scores[one] - scores[other]
        if error_rate:
            chance = (1 - error_rate) * delta.sigmoid() + error_rate / 2
            likely, unlikely = chance.log(), (1 - chance).log()
        else:
            likely, unlikely = log_sigmoid(delta), log_sigmoid(-delta)
        loss = -(share * (wanted * likely + (1 - wanted) * unlikely)).sum() / batch.extra.num_pairs
        told = _measure_agreement(share, wanted, delta, batch.extra.num_pairs)
        return LossReport(loss=loss, metrics={"reward_model/loss": float(loss.detach()), **told})

    return loss


def classification() -> Loss:
    """Return the mean of -y log σ(r) - (1-y) log σ(-r) over the answers of a comparison, and of it over comparisons.

    y is 1 where the rank of an answer is above 0, which says that it is good. Example: scores 2 (good) and -1 (bad)
    → .2200949, its gradients -.0596015 and .1344707. ``reward_model/accuracy`` is the share of answers whose score
    is on their side of 0.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        scores, ranks, together = _answers(outputs, batch)
        share = 1.0 / together.sum(1).to(scores.dtype)
        side = 2 * (ranks > 0).to(scores.dtype) - 1
        loss = -(share * log_sigmoid(side * scores)).sum() / batch.extra.num_pairs
        told = _measure_agreement(share, (1 + side) / 2, scores, batch.extra.num_pairs)
        return LossReport(loss=loss, metrics={"reward_model/loss": float(loss.detach()), **told})

    return loss


def _answers(outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores [answers], ranks [answers], and which two answers are of one comparison [answers, answers]."""
    if outputs.values is None:
        raise UsageError("scores of a reward model: got a model without a value head; give it one")
    rank, pair = batch.extra.rank, batch.extra.pair
    if rank is None or (pair < 0).any():
        raise DataError(
            "streams of a reward model: got one outside of any comparison; pack comparison_samples only"
        )
    names, owner = batch.extra.trajectory.unique(return_inverse=True)
    values = outputs.values.where(is_trained(batch), 0.0)
    scores = values.new_zeros(len(names)).index_add(0, owner[batch.sequence_id], values)
    ranks = values.new_zeros(len(names)).index_put((owner,), rank.to(values.dtype))
    owned = pair.new_zeros(len(names)).index_put((owner,), pair)
    return scores, ranks, owned[:, None] == owned[None, :]


def _measure_agreement(share: Tensor, wanted: Tensor, delta: Tensor, num: int) -> dict[str, float]:
    """Return how far scores agree with what is wanted, and by how much on average."""
    agrees = (delta.sign() == 2 * wanted - 1).to(share.dtype).where(wanted != 0.5, 0.5)
    sums = [(share * agrees).sum(), (share * (2 * wanted - 1) * delta).sum()]
    return dict(zip(("reward_model/accuracy", "reward_model/margin"), numbers(sums, num), strict=True))
