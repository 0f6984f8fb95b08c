"""Learning to Summarize: does the KL price keep the policy where the reward model is right?

A reward model is fitted to comparisons of the supervised policy's answers alone (`answers`), and PPO maximises it. The
number is how far the true worth of its answers has fallen at the end from its highest. The control pays the same
prices, to other answers: the log-ratios of whole answers are permuted over the batch, each spread over the tokens of
the answer that got it, so that the total paid is the same and nothing holds the policy. In the null world the reward
model says the truth, and there is nothing to be kept from.

Beside it: what the answers are worth at the end, and the fall without any price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.methods.loops.on_policy import Estimates
from quintain.methods.rl.parts.kl import reference_of
from quintain.methods.rlhf import learning_to_summarize
from quintain.types import Trajectory, derive_seed
from quintain_evidence.experiments.rlhf.answers import (
    Price,
    answers,
    compared,
    expected,
    fitted,
    same_price,
    scaled,
    scored_by,
    trained,
)  # fmt: skip


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with a world, a start and a reward model of its own."""
    return [replication(options, derive_seed(seed, number)) for number in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what the answers are worth after PPO with its price, with a permuted one, and without one."""
    rng = np.random.default_rng(seed % (1 << 63))
    made, start = answers(
        rng, rare=float(options["rare"]), worse=float(options["worse"]), spread=float(options["spread"])
    )
    groups = start.sample(size=2 * int(options["comparisons"]), seed=derive_seed(seed, "asked"))
    said = compared(groups, size=2, temperature=float(options["temperature"]))
    scores, worth = (scaled(made, start, each) for each in (fitted(made, said), made.worth))

    def run(coefficient: float, said: NDArray[np.float64], *, permuted: bool = False) -> Curve:
        method = learning_to_summarize.method(
            learning_to_summarize.Config(reward_model="table", kl_coef=coefficient)
        )
        price = permuting(derive_seed(seed, "permuted")) if permuted else same_price
        done = trained(
            scored_by(method, made, said, price), start, batches=int(options["batches"]),
            episodes=int(options["episodes"]), rate=float(options["rate"]), epochs=int(options["epochs"]),
            seed=derive_seed(seed, "ppo"),
        )  # fmt: skip
        return Curve((done.start, *done.by_batch), expected(made, done.policy, said))

    beta = float(options["beta"])
    priced, control, free = run(beta, scores), run(beta, scores, permuted=True), run(0.0, scores)
    truth, twin = run(beta, worth), run(beta, worth, permuted=True)
    return {
        "method": priced.fall,
        "control": control.fall,
        "null_method": truth.fall,
        "null_control": twin.fall,
        "extra.kept": priced.worth[-1] - control.worth[-1],
        "extra.gain": priced.worth[-1] - priced.worth[0],
        "extra.free": free.fall,
        "extra.proxy": control.score - priced.score,
        "extra.errs": float(scores.argmax() != made.worth.argmax()),
    }


@dataclass(frozen=True)
class Curve:
    """What answers are worth over a run, and what the reward model says of them at its end."""

    worth: tuple[float, ...]
    """before the first batch, and after each"""
    score: float

    @property
    def fall(self) -> float:
        """How far the worth is below its highest at the end."""
        return max(self.worth) - self.worth[-1]


def permuting(seed: int) -> Price:
    """Return a price by which each answer pays what another one of its batch should."""
    rng = np.random.default_rng(seed % (1 << 63))

    def price(trajectories: Sequence[Trajectory], estimates: Estimates) -> Estimates:
        own = [np.concatenate([t.completion.logprobs for t in each.turns]) for each in trajectories]
        theirs = [np.concatenate(list(arrays)) for arrays in reference_of(estimates)]
        totals = np.array([float((a - b).sum()) for a, b in zip(own, theirs, strict=True)])
        moved = rng.permutation(totals)
        made = [
            [array - total / len(logs) for array in np.split(logs, len(logs))]
            for logs, total in zip(own, moved.tolist(), strict=True)
        ]
        return replace(estimates, reference=made)

    return price
