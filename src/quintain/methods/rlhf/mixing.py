"""A likelihood of conversations in the gradient of every update of RL: PPO-ptx (arXiv 2203.02155, eq. 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quintain.data.samples import imitation_samples
from quintain.errors import DataError
from quintain.learning.update import Corpus
from quintain.methods.method import Collector
from quintain.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """A likelihood in the gradient of every update: ``Mixing(base=…, weight=1.0, batch_size=16)``.

    The objective is that of the update plus `weight` · E[log π] over the trained tokens of `base`, averaged over these
    alone, whatever the update's are averaged over.
    """

    base: Callable[[Collector], Sequence[Trajectory]]
    """conversations; called once, also by a resumed run"""
    weight: float
    batch_size: int
    """conversations beside each minibatch"""

    def draw_corpus(self, collector: Collector) -> Corpus | None:
        """Return what every update of a run imitates besides; None where that weighs nothing.

        Raises:
            DataError: there is to be something, and there is nothing.
        """
        if not self.weight:
            return None
        base = self.base(collector)
        if not base:
            raise DataError(
                "corpus that updates are mixed with: got nothing; name a file or run, or give the environment an expert"
            )
        return Corpus(imitation_samples(base), self.batch_size, self.weight)
