"""How well what is wanted is ranked: recall@k, the reciprocal rank, and NDCG@k (Järvelin and Kekäläinen, 2002)."""

from collections.abc import Collection, Sequence
from math import log2
from statistics import fmean

from quintain.errors import DataError

TOP = 10
"""Places that NDCG looks at."""
RECALLS = (1, 4, 10)

Ranked = Sequence[tuple[Sequence[int], Collection[int]]]
"""of each query (numbers of documents, the best first; numbers of those that answer it)"""


def recall(order: Sequence[int], wanted: Collection[int], k: int) -> float:
    """Return the share of `wanted` among the first `k` of `order`: ``recall([3, 1], {1, 2}, 2)`` is 0.5."""
    return len(set(order[:k]) & set(wanted)) / len(set(wanted))


def reciprocal_rank(order: Sequence[int], wanted: Collection[int]) -> float:
    """Return 1 over the place of the first of `wanted` in `order`, 0 where there is none."""
    return next((1 / place for place, number in enumerate(order, 1) if number in wanted), 0.0)


def ndcg(order: Sequence[int], wanted: Collection[int], k: int = TOP) -> float:
    """Return Σ 1/log2(place + 1) over the places up to `k` of what is `wanted`, as a part of the most there can be.

    Example: ``ndcg([5, 1, 2], {1})`` is 1/log2(3) = .6309.
    """
    gained = sum(1 / log2(place + 1) for place, number in enumerate(order[:k], 1) if number in wanted)
    return gained / sum(1 / log2(place + 1) for place in range(1, min(len(set(wanted)), k) + 1))


def ranking_metrics(ranked: Ranked) -> dict[str, float]:
    """Return ``recall@1``, ``recall@4``, ``recall@10``, ``mrr`` and ``ndcg@10``, means over queries.

    Raises:
        DataError: there is no query, or one that nothing answers.
    """
    if not ranked or not all(wanted for _, wanted in ranked):
        raise DataError(f"rankings: got {len(ranked)}, and each needs something that answers it; give some")
    return {
        **{f"recall@{k}": fmean(recall(order, wanted, k) for order, wanted in ranked) for k in RECALLS},
        "mrr": fmean(reciprocal_rank(order, wanted) for order, wanted in ranked),
        f"ndcg@{TOP}": fmean(ndcg(order, wanted) for order, wanted in ranked),
    }
