"""L = -log exp(s(q, d+)/τ) / Σ_d exp(s(q, d)/τ): InfoNCE over the documents of a batch (arXiv 1807.03748, eq. 4).

s is the cosine of two embeddings. The documents of all queries of a batch are each other's negatives. A document that
answers a query as well as its own does, such as the same one drawn twice, is no negative: it leaves the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quintain.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


def info_nce(queries: Tensor, documents: Tensor, keys: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Return the mean loss of `queries` [B, D] whose documents are the rows of `documents` [B, D], all of length 1.

    `keys` [B] names what each document is: rows with equal keys are the same to a query and never negatives of each
    other. `temperature` is τ. Example: two queries with cosines .9 to their own and .8 to the other's document lose
    log(1 + exp(-.1/.05)) = .1269 each.

    Raises:
        UsageError: the temperature is not above 0.
    """
    if temperature <= 0:
        raise UsageError(f"temperature of InfoNCE: got {temperature}; give a number above 0")
    scores = queries @ documents.T / temperature
    own = scores.diagonal()
    same = (keys[:, None] == keys[None, :]).fill_diagonal_(False)
    return (scores.masked_fill(same, float("-inf")).logsumexp(1) - own).mean()
