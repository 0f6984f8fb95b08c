"""The KL to the starting policy, in the loss or in the reward, with a weight that is fixed or adapted.

The adapted weight (arXiv 1909.08593) is a fold over the metrics of the steps that are committed, so a resumed run
goes on with the one it had. The one rule: a KL stands in one place, never in both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.credit.penalty import add_token_rewards, kl_rewards
from quintain.losses.kl import adapted_coefficient, kl_penalty
from quintain.methods.loops.method import Assign
from quintain.methods.rl.parts.reference import reference_logprobs
from quintain.training.work import Work
from quintain.types import Credit, Group, Loss

Place = Literal["loss", "reward"]
EPISODE, WEIGHT = "kl/episode", "kl/coefficient"


@dataclass(frozen=True, slots=True)
class Anchor:
    """How a policy is held at its start: ``Anchor(0.01, "reward", target=2.0)``; weight 0 does not hold it."""

    weight: float
    place: Place = "loss"
    target: float | None = None
    """mean KL of an episode in nats that the weight is adapted to; None keeps the weight"""

    @property
    def is_in_loss(self) -> bool:
        """Whether batches need the log-probs of the reference."""
        return self.weight > 0 and self.place == "loss"

    def coefficient(self, work: Work) -> float:
        """Return the weight of the step at hand."""
        found = self.weight
        for row in work.run.metrics() if self.target is not None else ():
            if EPISODE in row and self.target is not None:
                num = int(row["credit/trajectories"])
                found = adapted_coefficient(found, row[EPISODE], target=self.target, num=num)
        return found

    def losses(self, work: Work) -> list[tuple[Loss, float]]:
        """Return the terms that the KL adds to the loss of the step."""
        return [(kl_penalty("k3"), self.coefficient(work))] if self.is_in_loss else []

    def priced(self, assign: Assign) -> Assign:
        """Return `assign` on rewards less the KL, where it stands there; what it comes to is measured."""
        if not self.weight or (self.place == "loss" and self.target is None):
            return assign

        def credit(work: Work, groups: Sequence[Group]) -> Credit:
            weight = self.coefficient(work)
            divergence = kl_rewards(groups, reference_logprobs(work, groups), coefficient=-1.0)
            sums = [sum(float(array.sum()) for array in turns) for turns in divergence]
            if self.place == "reward":
                penalty = [[-weight * array for array in turns] for turns in divergence]
                found = assign(work, add_token_rewards(groups, penalty))
            else:
                found = assign(work, groups)
            metrics = {EPISODE: sum(sums) / max(len(sums), 1), WEIGHT: weight}
            return replace(found, metrics={**found.metrics, **metrics})

        return credit
