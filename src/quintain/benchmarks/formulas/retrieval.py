"""What a retriever learns from and is measured by, each beside a plain second version."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log2
from types import ModuleType

import torch

from quintain.benchmarks.formulas.formula import Formula, Rng, flatten

TEMPERATURE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Embeddings of length 1 of queries and of their documents, some of which are the same document."""

    queries: list[list[float]]
    documents: list[list[float]]
    keys: list[int]


def pairs(rng: Rng) -> Pairs:
    """Return two to six pairs of three numbers a side; half of the cases have a document twice."""
    num = int(rng.integers(2, 7))
    sides = [
        [[float(x) for x in row / (row @ row) ** 0.5] for row in rng.normal(size=(num, 3))] for _ in range(2)
    ]
    keys = [int(k) for k in (rng.integers(0, 3, num) if rng.random() < 0.5 else range(num))]
    return Pairs(queries=sides[0], documents=sides[1], keys=keys)


def learned(module: ModuleType, case: Pairs) -> list[float]:
    """Return the loss of the code, and its gradients."""
    queries = torch.tensor(case.queries, dtype=torch.float64, requires_grad=True)
    documents = torch.tensor(case.documents, dtype=torch.float64, requires_grad=True)
    loss = module.info_nce(queries, documents, names=case.keys, temperature=TEMPERATURE)
    return flatten([loss.detach(), *torch.autograd.grad(loss, (queries, documents))])


def learned_plainly(case: Pairs) -> list[float]:
    """Return the loss query by query, and gradients by hand: τ·dL/dq_i = Σ_j (p_ij - [i = j]) d_j / B."""
    num, size = len(case.keys), len(case.queries[0])
    loss = 0.0
    by_query = [[0.0] * size for _ in range(num)]
    by_document = [[0.0] * size for _ in range(num)]
    for i, query in enumerate(case.queries):
        there = [j for j in range(num) if j == i or case.keys[j] != case.keys[i]]
        scores = {
            j: sum(a * b for a, b in zip(query, case.documents[j], strict=True)) / TEMPERATURE for j in there
        }
        total = sum(exp(score) for score in scores.values())
        loss += (log(total) - scores[i]) / num
        for j in there:
            share = (exp(scores[j]) / total - (j == i)) / TEMPERATURE / num
            for k in range(size):
                by_query[i][k] += share * case.documents[j][k]
                by_document[j][k] += share * query[k]
    return flatten([loss, by_query, by_document])


Rankings = list[tuple[list[int], set[int]]]


def rankings(rng: Rng) -> Rankings:
    """Return orders of up to twenty documents, with one to four that are wanted, not all of which are found."""
    found: Rankings = []
    for _ in range(int(rng.integers(1, 6))):
        order = [int(k) for k in rng.permutation(20)][: int(rng.integers(1, 21))]
        found.append((order, {int(k) for k in rng.integers(0, 20, int(rng.integers(1, 5)))}))
    return found


def measured(module: ModuleType, case: Rankings) -> list[float]:
    """Return the numbers of the code, in the order of their names."""
    return [value for _, value in sorted(module.ranking_metrics(case).items())]


def measured_plainly(case: Rankings) -> list[float]:
    """Return mrr, ndcg@10, recall@1, recall@10 and recall@4, ranking by ranking."""
    sums = [0.0] * 5
    for order, wanted in case:
        places = sorted(order.index(number) + 1 for number in wanted if number in order)
        best = sum(1 / log2(2 + k) for k in range(min(len(wanted), 10)))
        own = [
            1 / places[0] if places else 0.0,
            sum(1 / log2(place + 1) for place in places if place < 11) / best,
            *(len([place for place in places if place < k + 1]) / len(wanted) for k in (1, 10, 4)),
        ]
        sums = [total + one / len(case) for total, one in zip(sums, own, strict=True)]
    return sums


FORMULAS: tuple[Formula, ...] = (
    Formula("losses.info_nce", "losses.contrastive", ("info_nce",), pairs, learned, learned_plainly),
    Formula("eval.ranking", "eval.ranking", ("ranking_metrics", "recall", "reciprocal_rank", "ndcg"), rankings,
        measured, measured_plainly),
)  # fmt: skip
