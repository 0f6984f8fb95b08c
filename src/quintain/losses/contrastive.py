"""L = -mean_i log(exp(s_ii/τ) / Σ_j exp(s_ij/τ)), s_ij = q_i·k_j: InfoNCE (arXiv 1807.03748) over a batch.

Every other key of the batch is a negative of a query. Where two keys are the same text, one would be a false negative
of the other's query: they are left out of its sum.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from quintain.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


def info_nce(
    queries: Tensor, keys: Tensor, *, temperature: float = 0.05, names: Sequence[Hashable] | None = None
) -> Tensor:
    """Return the loss of `queries` [B, D], of which number i belongs to number i of `keys` [B, D].

    Keys of equal `names` are the same. Example: similarities [[1, 0], [0, 1]] and τ 1 → log(1 + 1/e) = .31326.

    Raises:
        UsageError: the shapes differ, the temperature is not positive, or there is not a name for each key.
    """
    if queries.shape != keys.shape or queries.dim() != 2:
        raise UsageError(f"InfoNCE: got {tuple(queries.shape)} and {tuple(keys.shape)}; give two of [B, D]")
    if temperature <= 0:
        raise UsageError(f"temperature of InfoNCE: got {temperature}; give a positive number")
    logits = queries @ keys.T / temperature
    if names is not None:
        if len(names) != len(keys):
            raise UsageError(f"names of {len(keys)} keys: got {len(names)}; give one to each")
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        own = keys.new_tensor([numbers[name] for name in names])
        same = own[:, None] == own[None, :]
        same.fill_diagonal_(False)
        logits = logits.masked_fill(same, float("-inf"))
    return -logits.log_softmax(1).diagonal().mean()
