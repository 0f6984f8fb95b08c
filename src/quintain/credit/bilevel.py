"""Turn-level GAE over turn ends, then token-level GAE inside each turn: bi-level GAE (RAGEN, arXiv 2504.20073).

High level: δ_k = r_k + gamma_h·V(end_{k+1}) - V(end_k), A_k = δ_k + gamma_h·λ·A_{k+1}; A_k + V(end_k) is then the
reward of the turn's last token, and inside the turn the value after that token is 0. Where we differ: turn ends are
the turns' own, never "where the reward is not 0" (a turn without reward keeps its boundary), and whitening is left to
`whiten`. Unit: none, nothing is normalised. Singleton rule: none needed.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.credit.gae import final_value, gae, place_rewards, sum_discounted, values_of, with_returns
from quintain.credit.layout import Critic
from quintain.types import Credit, Group, flatten_scored


def gae_bilevel(
    groups: Sequence[Group],
    critic: Critic,
    *,
    discount: float = 1.0,
    turn_discount: float = 0.95,
    gae_lambda: float = 1.0,
) -> Credit:
    """Estimate over turn ends with gamma_h = `turn_discount`, then over the tokens of each turn with gamma =
    `discount`.

    Example: two turns of 5 tokens, rewards 1 and 1, values .1, .2, … 1, gamma = λ = 1, gamma_h = .95 →
    1.85, 1.75, 1.65, 1.55, 1.45 and .4, .3, .2, .1, 0.
    """
    trajectories = flatten_scored(groups)
    values = values_of(trajectories, critic)
    advantages: list[list[NDArray[np.float64]]] = []
    outcomes: list[list[NDArray[np.float64]]] = []
    for index, trajectory in enumerate(trajectories):
        arrays = values[index]
        acting = [k for k, array in enumerate(arrays) if len(array)]
        rewards = place_rewards(
            trajectory, None if critic.token_rewards is None else critic.token_rewards[index]
        )
        ends = [float(arrays[k][-1]) for k in acting]
        paid, discounts = [rewards[k] for k in acting], [turn_discount] * len(acting)
        high = gae(
            paid,
            ends,
            discounts=discounts,
            gae_lambda=gae_lambda,
            final=final_value(critic, index, trajectory),
        )
        targets = {k: a + v for k, a, v in zip(acting, high, ends, strict=True)}
        advantages.append(
            [_inside(array, targets.get(k, 0.0), discount, gae_lambda) for k, array in enumerate(arrays)]
        )
        came = dict(zip(acting, sum_discounted(paid, discounts), strict=True))
        outcomes.append(
            [
                came.get(k, 0.0) * np.power(discount, np.arange(len(array), dtype=np.float64)[::-1])
                for k, array in enumerate(arrays)
            ]
        )
    return with_returns(trajectories, advantages, values, outcomes)


def _inside(
    values: NDArray[np.float64], target: float, discount: float, gae_lambda: float
) -> NDArray[np.float64]:
    if not len(values):
        return values
    rewards = [0.0] * (len(values) - 1) + [target]
    return np.array(
        gae(rewards, values.tolist(), discounts=[discount] * len(values), gae_lambda=gae_lambda, final=0.0)
    )
