"""s_t = β · mean over the tokens of turn t of log π/π_ref, fitted so that σ(Σ_t s_t) is the chance of success.

An implicit process reward (MARTI's AgentPRM; github.com/TsinghuaC3I/MARTI): only the outcome of a talk is told, and
what each turn is worth comes out of a model π that began as π_ref. The cross entropy -y log σ - (1 - y) log(1 - σ) is
lowered by tokens weighed with β (y - σ) / tokens of the turn; the sign in that project's documentation raises it.
Unit: turn. Singleton rule: none needed. A turn without a sampled token has the score 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.credit.layout import TokenArrays, check_arrays, credit_of
from quintain.types import Credit, Trajectory


def score_turns(logprobs: TokenArrays, reference: TokenArrays, *, beta: float = 1.0) -> list[list[float]]:
    """Return the score of each turn, ``[trajectory][turn]``, of log-probs of the same tokens under both.

    Example: β .5, two tokens whose log-ratios are 1 and 3 → 1.
    """
    return [
        [
            beta * float((own.astype(np.float64) - other).mean()) if len(own) else 0.0
            for own, other in zip(turns, others, strict=True)
        ]
        for turns, others in zip(logprobs, reference, strict=True)
    ]


def fit_outcomes(
    trajectories: Sequence[Trajectory], logprobs: TokenArrays, reference: TokenArrays, *, beta: float = 1.0
) -> Credit:
    """Return the weights of tokens with which π goes down the cross entropy of successes, summed over turns.

    Logs ``implicit/cross_entropy`` (nats an episode). Example: one turn of two tokens, log-ratios 0, a success, β 1 →
    .25 for each.
    """
    check_arrays(trajectories, logprobs, "log-probs")
    scores = score_turns(logprobs, reference, beta=beta)
    weights: list[list[NDArray[np.float64]]] = []
    nats: list[float] = []
    for trajectory, own in zip(trajectories, scores, strict=True):
        total, is_success = sum(own), trajectory.is_success
        nats.append(float(np.logaddexp(0.0, -total if is_success else total)))
        miss = float(is_success) - 1 / (1 + np.exp(-total))
        counts = [len(turn.completion.token_ids) for turn in trajectory.turns]
        weights.append([np.full(count, beta * miss / max(count, 1)) for count in counts])
    return credit_of(
        trajectories, weights, metrics={"implicit/cross_entropy": float(np.mean(nats)) if nats else 0.0}
    )
