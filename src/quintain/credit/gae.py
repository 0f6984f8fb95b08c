"""δ_t = r_t + gamma·V_{t+1} - V_t, A_t = δ_t + gamma·λ·A_{t+1}: generalised advantage estimation (arXiv 1506.02438).

Over the tokens the policy sampled, or over turns as macro-actions. The value after a token is that of the next
*policy* token, across whatever observation stands between. Beyond the end it is 0 where the task was over, by its own
limit of turns too, and the given final value where the trainer cut it. λ = 1 is Monte Carlo. Rewards of a turn fall on
its last token. Every `Credit` made here says in `value/explained_variance` how well the values foretold what came.
Unit: none, nothing is normalised; see `whiten`. Singleton rule: none needed. Observations are never a step of the
chain.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quintain.credit.layout import (
    Critic,
    TokenArrays,
    check_arrays,
    credit_of,
    group_metrics,
    outcome_of,
    turn_rewards,
)
from quintain.errors import DataError
from quintain.types import Credit, Group, Trajectory, Turn, flatten_scored, is_constant


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    *,
    discounts: Sequence[float],
    gae_lambda: float,
    final: float,
) -> list[float]:
    """Return the advantages of one chain; `discounts[t]` stands between step t and t + 1, `final` after the
    last.

    Example: rewards 0, 0, 1, values .2, .4, .5, discounts 1, gae_lambda .95, final 0 → .74625, .575, .5.
    """
    result: list[float] = []
    advantage, following = 0.0, final
    for reward, value, discount in zip(reversed(rewards), reversed(values), reversed(discounts), strict=True):
        advantage = reward + discount * following - value + discount * gae_lambda * advantage
        following = value
        result.append(advantage)
    return result[::-1]


def gae_tokens(
    groups: Sequence[Group],
    critic: Critic,
    *,
    discount: float = 1.0,
    turn_discount: float | None = None,
    gae_lambda: float | Callable[[Trajectory], float] = 0.95,
) -> Credit:
    """Estimate per token: gamma = `discount` between tokens of a turn, `turn_discount` between turns
    (default: the same).

    `gae_lambda` is λ, or a function of the trajectory such as `length_adaptive`. Returns are A + V.
    """
    trajectories = flatten_scored(groups)
    between = discount if turn_discount is None else turn_discount
    advantages: list[list[NDArray[np.float64]]] = []
    outcomes: list[list[NDArray[np.float64]]] = []
    values = values_of(trajectories, critic)
    for index, trajectory in enumerate(trajectories):
        rewards = _token_rewards(
            trajectory, None if critic.token_rewards is None else critic.token_rewards[index]
        )
        counts = [len(array) for array in values[index]]
        discounts = [d for count in counts if count for d in (discount,) * (count - 1) + (between,)]
        chain = gae(
            rewards,
            np.concatenate(values[index]).tolist(),
            discounts=discounts,
            gae_lambda=gae_lambda(trajectory) if callable(gae_lambda) else gae_lambda,
            final=final_value(critic, index, trajectory),
        )
        ends = np.cumsum(counts)[:-1]
        advantages.append(np.split(np.array(chain), ends))
        outcomes.append(np.split(np.array(sum_discounted(rewards, discounts)), ends))
    return with_returns(trajectories, advantages, values, outcomes)


def gae_turns(
    groups: Sequence[Group],
    critic: Critic,
    *,
    discount: float = 1.0,
    gae_lambda: float = 0.95,
    duration: Callable[[Turn], float] | None = None,
) -> Credit:
    """Estimate per turn, with V at the first token of a turn; all of its tokens share advantage and return.

    `duration` makes turns macro-actions (SMDP, Sutton et al. 1999): gamma to the power of what it says of a
    turn. With λ = 0 and Monte-Carlo values of the states this is step-value credit, r + V(next state) -
    V(state).
    """
    trajectories = flatten_scored(groups)
    values = values_of(trajectories, critic)
    advantages: list[list[NDArray[np.float64]]] = []
    states: list[list[NDArray[np.float64]]] = []
    outcomes: list[list[NDArray[np.float64]]] = []
    for index, trajectory in enumerate(trajectories):
        arrays = values[index]
        acting = [k for k, array in enumerate(arrays) if len(array)]
        rewards = place_rewards(
            trajectory, None if critic.token_rewards is None else critic.token_rewards[index]
        )
        paid = [rewards[k] for k in acting]
        discounts = [
            discount if duration is None else discount ** duration(trajectory.turns[k]) for k in acting
        ]
        chain = gae(
            paid,
            [float(arrays[k][0]) for k in acting],
            discounts=discounts,
            gae_lambda=gae_lambda,
            final=final_value(critic, index, trajectory),
        )
        of = dict(zip(acting, chain, strict=True))
        came = dict(zip(acting, sum_discounted(paid, discounts), strict=True))
        advantages.append([np.full(len(array), of.get(k, 0.0)) for k, array in enumerate(arrays)])
        outcomes.append([np.full(len(array), came.get(k, 0.0)) for k, array in enumerate(arrays)])
        states.append([np.full(len(array), array[0]) if len(array) else array for array in arrays])
    return with_returns(trajectories, advantages, states, outcomes)


def length_adaptive(alpha: float = 0.05) -> Callable[[Trajectory], float]:
    """Return λ = max(0, 1 - 1/(alpha·L)) of the L sampled tokens of a trajectory (VAPO, arXiv 2504.05118).

    Example: alpha .05 and L 400 → .95; L 20 → 0.
    """
    return lambda trajectory: max(0.0, 1 - 1 / (alpha * trajectory.num_sampled))


def join_advantages(policy: Credit, critic: Credit) -> Credit:
    """Return the advantages of `policy` with the regression targets of `critic`, made with another λ.

    Decoupled GAE (VC-PPO, arXiv 2503.01491): λ = 1 for the critic's targets. Example:
    ``join_advantages(gae_tokens(groups, critic, gae_lambda=.95), gae_tokens(groups, critic, gae_lambda=1.))``.
    """
    return replace(policy, returns=critic.returns)


def final_value(critic: Critic, index: int, trajectory: Trajectory) -> float:
    """Return the value after the last token: 0 where the task was over, or where none was given."""
    if critic.final is None or not trajectory.stop.is_cut:
        return 0.0
    return float(critic.final[index])


def sum_discounted(rewards: Sequence[float], discounts: Sequence[float]) -> list[float]:
    """Return the discounted sum of the rewards from each step of a chain on, as they came.

    Example: rewards 0, 1 and discounts .5, 1 → .5, 1.
    """
    return gae(rewards, [0.0] * len(rewards), discounts=discounts, gae_lambda=1.0, final=0.0)


def explained_variance(
    trajectories: Sequence[Trajectory], values: TokenArrays, outcomes: TokenArrays
) -> float:
    """Return 1 - Σ(G - V)² / Σ(G - mean G)² over the sampled tokens of the episodes that were not cut.

    `outcomes` are the realised returns G. 1: the values foretell them; 0: no better than their mean; below 0: worse.
    Without episodes that came to their end, or where all of G is equal, it is 0.
    """
    whole = [index for index, trajectory in enumerate(trajectories) if not trajectory.stop.is_cut]
    foretold = np.concatenate([np.zeros(0), *(array for index in whole for array in values[index])])
    came = np.concatenate([np.zeros(0), *(array for index in whole for array in outcomes[index])])
    if is_constant(came.tolist()):
        return 0.0
    return float(1 - ((came - foretold) ** 2).sum() / ((came - came.mean()) ** 2).sum())


def with_returns(
    trajectories: Sequence[Trajectory], advantages: TokenArrays, values: TokenArrays, outcomes: TokenArrays
) -> Credit:
    """Return the `Credit` of `advantages`, whose returns are advantage + value; `outcomes` are the realised ones."""
    returns = [
        [a + v for a, v in zip(own, array, strict=True)]
        for own, array in zip(advantages, values, strict=True)
    ]
    metrics = group_metrics(trajectories, outcome_of)
    metrics["value/explained_variance"] = explained_variance(trajectories, values, outcomes)
    return credit_of(trajectories, advantages, returns=returns, metrics=metrics)


def values_of(trajectories: Sequence[Trajectory], critic: Critic) -> list[list[NDArray[np.float64]]]:
    """Return the critic's values in float64; raises `DataError` where they do not fit or are not finite."""
    values = [
        [array.astype(np.float64) for array in turns]
        for turns in check_arrays(trajectories, critic.values, "values")
    ]
    if critic.token_rewards is not None:
        check_arrays(trajectories, critic.token_rewards, "token rewards")
    if critic.final is not None and len(critic.final) != len(trajectories):
        got = len(critic.final)
        raise DataError(
            f"final values of {len(trajectories)} trajectories: got {got}; give one to each, 0 if ended"
        )
    numbers = [np.asarray(critic.final or [0.0]), *(array for turns in values for array in turns)]
    if not np.isfinite(np.concatenate(numbers)).all():
        raise DataError(
            "values of a critic: got one that is not finite; lower the learning rate of the critic"
        )
    return values


def place_rewards(trajectory: Trajectory, extra: Sequence[NDArray[np.floating]] | None) -> list[float]:
    """Return the rewards by turn; that of a turn without tokens goes to the last acting turn before it."""
    rewards = turn_rewards(trajectory)
    if extra is not None:
        rewards = [reward + float(own.sum()) for reward, own in zip(rewards, extra, strict=True)]
    acting: int | None = None
    for index, turn in enumerate(trajectory.turns):
        if turn.completion.token_ids:
            acting = index
        elif acting is not None:
            rewards[acting] += rewards[index]
    return rewards


def _token_rewards(trajectory: Trajectory, extra: Sequence[NDArray[np.floating]] | None) -> list[float]:
    """Return the rewards by sampled token: those of `extra`, and the turn's own on its last token."""
    rewards: list[float] = []
    for index, (turn, reward) in enumerate(
        zip(trajectory.turns, place_rewards(trajectory, None), strict=True)
    ):
        num = len(turn.completion.token_ids)
        own = [0.0] * num if extra is None else extra[index].tolist()
        if num:
            own[-1] += reward
        rewards += own
    return rewards
