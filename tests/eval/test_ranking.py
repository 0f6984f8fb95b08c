"""Recall, reciprocal ranks and NDCG on lists by hand."""

from math import log2

import pytest

from quintain.errors import DataError
from quintain.eval.ranking import ndcg, ranking_metrics, recall, reciprocal_rank


def test_what_is_found_at_which_place() -> None:
    assert recall([3, 1], {1, 2}, 2) == 0.5
    assert recall([3, 1], {1, 2}, 1) == 0
    assert reciprocal_rank([5, 1, 2], {1, 2}) == 0.5
    assert reciprocal_rank([5], {1}) == 0
    assert ndcg([5, 1, 2], {1}) == pytest.approx(1 / log2(3))
    assert ndcg([1, 5, 2], {1, 2}) == pytest.approx((1 + 1 / log2(4)) / (1 + 1 / log2(3)))
    assert ndcg([9] * 10 + [1], {1}) == 0
    assert ndcg([1], set(range(1, 30)), 10) == pytest.approx(1 / sum(1 / log2(p + 1) for p in range(1, 11)))


def test_means_over_queries() -> None:
    found = ranking_metrics([((1, 2), {1}), ((1, 2), {2})])
    assert found == pytest.approx(
        {"recall@1": 0.5, "recall@4": 1, "recall@10": 1, "mrr": 0.75, "ndcg@10": (1 + 1 / log2(3)) / 2}
    )


@pytest.mark.parametrize("ranked", [[], [((1,), set[int]())]])
def test_nothing_to_find(ranked: list[tuple[tuple[int, ...], set[int]]]) -> None:
    with pytest.raises(DataError, match="each needs something that answers it"):
        ranking_metrics(ranked)
