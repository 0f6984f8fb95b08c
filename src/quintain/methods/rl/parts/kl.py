"""The KL to the starting policy, in the loss or in the reward, with a weight that is fixed or adapted.

The adapted weight (arXiv 1909.08593) is a fold over the metrics of the steps that are done, so a resumed run goes on
with the one it had. A KL stands in one place, never in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quintain.credit.penalty import add_token_rewards, kl_rewards
from quintain.errors import UsageError
from quintain.losses.kl import adapt_coefficient, kl_penalty
from quintain.methods.loops.on_policy import Assign, Estimates
from quintain.types import Batch, Credit, Group, Loss, LossReport, Outputs

Place = Literal["loss", "reward"]
EPISODE, WEIGHT = "kl/episode", "kl/coefficient"


class KLController:
    """Holds a policy at its start: ``KLController(0.01, "reward", target=2.0)``; coefficient 0 does not hold it.

    Args:
        coefficient: weight of the KL.
        place: in the loss (k3 of each token) or in the reward (k1 of the episode).
        target: mean KL of an episode in nats that the weight is adapted to; None keeps the weight.
    """

    def __init__(self, coefficient: float, place: Place = "loss", target: float | None = None) -> None:
        self.coefficient, self.place, self.target = coefficient, place, target
        self.is_active = coefficient > 0

    @property
    def is_in_loss(self) -> bool:
        """Whether batches need the log-probs of the reference."""
        return self.is_active and self.place == "loss"

    @property
    def is_in_credit(self) -> bool:
        """Whether the credit reads the log-probs of the reference."""
        return self.is_active and (self.place == "reward" or self.target is not None)

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Adapt the weight to the KL of a step that is done."""
        if self.target is not None and EPISODE in metrics:
            num = int(metrics["credit/trajectories"])
            self.coefficient = adapt_coefficient(
                self.coefficient, metrics[EPISODE], target=self.target, num=num
            )

    def loss(self) -> Loss:
        """Return the k3 penalty, times the coefficient of the step at hand."""
        penalty = kl_penalty("k3")

        def weigh(outputs: Outputs, batch: Batch) -> LossReport:
            report = penalty(outputs, batch)
            return replace(report, loss=self.coefficient * report.loss)

        return weigh

    def token_rewards(
        self, groups: Sequence[Group], estimates: Estimates
    ) -> tuple[list[list[NDArray[np.floating]]] | None, dict[str, float]]:
        """Return -coefficient·(log π - log π_ref) per token, None for a coefficient of 0, and what the KL comes to."""
        if not self.is_active:
            return None, {}
        divergence = kl_rewards(groups, reference_of(estimates), coefficient=-1.0)
        sums = [sum(float(array.sum()) for array in turns) for turns in divergence]
        rewards: list[list[NDArray[np.floating]]] = [
            [-self.coefficient * array for array in turns] for turns in divergence
        ]
        return rewards, {EPISODE: sum(sums) / max(len(sums), 1), WEIGHT: self.coefficient}

    def price(self, assign: Assign) -> Assign:
        """Return `assign` on rewards less the KL, where it stands there; what the KL comes to is measured."""
        if not self.is_in_credit:
            return assign

        def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
            divergence = kl_rewards(groups, reference_of(estimates), coefficient=-1.0)
            sums = [sum(float(array.sum()) for array in turns) for turns in divergence]
            if self.place == "reward":
                penalty = [[-self.coefficient * array for array in turns] for turns in divergence]
                found = assign(add_token_rewards(groups, penalty), estimates)
            else:
                found = assign(groups, estimates)
            metrics = {EPISODE: sum(sums) / max(len(sums), 1), WEIGHT: self.coefficient}
            return replace(found, metrics={**found.metrics, **metrics})

        return credit


def price_kl(
    groups: Sequence[Group], estimates: Estimates, coefficient: float
) -> list[list[NDArray[np.floating]]] | None:
    """Return -coefficient·(log π - log π_ref) per token; None for a coefficient of 0."""
    if not coefficient:
        return None
    rewards = kl_rewards(groups, reference_of(estimates), coefficient=coefficient)
    return [list(turns) for turns in rewards]


def reference_of(estimates: Estimates) -> Sequence[Sequence[NDArray[np.floating]]]:
    """Return the reference's log-probs of the sampled tokens.

    Raises:
        UsageError: the method did not ask for them.
    """
    if estimates.reference is None:
        raise UsageError(
            "log-probs of the reference: got none; say needs=Needs(reference_logprobs=True) in the method"
        )
    return estimates.reference
