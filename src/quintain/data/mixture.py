"""Several datasets as one: in blocks of 1000 draws each has its exact share, spread at random over the block.

Which item comes at draw n is a pure function of (seed, n): every dataset is walked in an order of its own that is new
in each epoch, and no item comes twice before all others came once. A resumed run needs the step alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError, UsageError
from quintain.types import derive_seed

Item = TypeVar("Item")

BLOCK = 1000
"""Draws after which every share is exact; shares are rounded to 1/1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetMixture(Generic[Item]):
    """A weighted mixture of named datasets.

    Example: ``DatasetMixture(datasets={"new": a, "old": b}, weights={"new": 3, "old": 1}).draw(0, 8)`` → 8 items.
    """

    datasets: Mapping[str, Sequence[Item]]
    weights: Mapping[str, float]
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that every dataset has items and a weight that gives it at least one draw of a block."""
        if not self.datasets or self.datasets.keys() != self.weights.keys():
            got = (sorted(self.datasets), sorted(self.weights))
            raise UsageError(f"datasets and weights of a mixture: got {got}; name the same, and at least one")
        empty = [name for name, items in self.datasets.items() if not items]
        if empty:
            raise DataError(f"items of the dataset {empty[0]}: got none; leave it out of the mixture")
        if not all(0 < weight < float("inf") for weight in self.weights.values()):
            raise UsageError(f"weights of a mixture: got {dict(self.weights)}; give finite numbers above 0")
        if 0 in _quotas(tuple(self.weights.values())):
            raise UsageError(
                f"weights of a mixture: got {dict(self.weights)}; keep each above 1/{BLOCK} of the sum"
            )

    def draw(self, step: int, count: int) -> list[Item]:
        """Return the `count` items of step `step` (from 0), if every step draws as many."""
        return [item for _, item in self.named(step, count)]

    def named(self, step: int, count: int) -> list[tuple[str, Item]]:
        """Return the items of `draw`, each with the name of its dataset."""
        return [self._at(number) for number in range(step * count, (step + 1) * count)]

    def _at(self, number: int) -> tuple[str, Item]:
        weights = tuple(self.weights.values())
        block, place = divmod(number, BLOCK)
        order = _block(weights, derive_seed("mixture", self.seed, block))
        which = int(order[place])
        name = list(self.weights)[which]
        before = block * _quotas(weights)[which] + int(np.count_nonzero(order[:place] == which))
        items = self.datasets[name]
        epoch, index = divmod(before, len(items))
        return name, items[int(_order(len(items), derive_seed("epoch", self.seed, name, epoch))[index])]


@lru_cache(maxsize=64)
def _quotas(weights: tuple[float, ...]) -> tuple[int, ...]:
    """Return how many draws of a block each weight has, by largest remainder."""
    exact = [BLOCK * weight / sum(weights) for weight in weights]
    quotas = [int(share) for share in exact]
    left = sorted(range(len(exact)), key=lambda index: (quotas[index] - exact[index], index))
    for index in left[: BLOCK - sum(quotas)]:
        quotas[index] += 1
    return tuple(quotas)


@lru_cache(maxsize=8)
def _block(weights: tuple[float, ...], seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(weights)), _quotas(weights)))


@lru_cache(maxsize=64)
def _order(size: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(size)
