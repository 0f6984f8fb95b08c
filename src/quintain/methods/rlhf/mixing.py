"""A likelihood of conversations in the gradient of every update of RL: PPO-ptx (arXiv 2203.02155, eq. 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quintain.errors import DataError
from quintain.learning.train_config import OnPolicyConfig
from quintain.learning.update import Corpus
from quintain.methods.loops.on_policy import Companion
from quintain.methods.method import Collector
from quintain.types import Trajectory

if TYPE_CHECKING:
    from quintain.runs.context import TrainingContext


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

    @property
    def own_rates(self) -> tuple[str, ...]:
        """No policy of its own."""
        return ()

    @property
    def has_teacher(self) -> bool:
        """The conversations teach."""
        return True

    def start(self, context: TrainingContext, config: OnPolicyConfig) -> Companion:
        """Return what every update of a run imitates besides.

        Raises:
            DataError: there is to be something, and there is nothing.
        """
        from quintain.data.samples import imitation_samples

        companion = Companion()
        if not self.weight:
            return companion
        base = self.base(context.collector)
        if not base:
            raise DataError(
                "corpus that updates are mixed with: got nothing; name a file or run, or give the environment an expert"
            )
        companion.corpus = Corpus(imitation_samples(base), self.batch_size, self.weight)
        return companion
