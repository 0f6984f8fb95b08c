"""A_k = r_k + γ V(s_{k+1}) - V(s_k), with V the mean return of episodes sampled on from the state itself.

Monte-Carlo step values (VinePPO, arXiv 2410.01679): no critic is learned, so its errors are only those of few
samples; a turn that wins or loses the episode stands out. After the last turn V is 0 where the environment ended the
episode. Unit: none, nothing is normalised. Singleton rule: none needed. Values are of states before turns, from
rollouts that began there.
"""

from collections.abc import Sequence

from quintain.credit.layout import credit_of, group_metrics, outcome_of, repeat_over_tokens, turn_rewards
from quintain.errors import DataError
from quintain.types import Credit, Group, Trajectory, flatten_scored


def step_value(
    groups: Sequence[Group],
    values: Sequence[Sequence[float]],
    *,
    final: Sequence[float] | None = None,
    discount: float = 1.0,
) -> Credit:
    """Give every token of turn k the advantage of its turn; `values[trajectory][turn]` of the scored, in order.

    `final` holds the value after the last turn of each trajectory (0 without: nothing is left). Example: rewards
    0, 1 and values .5, .8 → .3, .2. The advantages of an episode sum to its return less the first value.
    """
    trajectories = flatten_scored(groups)
    want = [len(trajectory.turns) for trajectory in trajectories]
    got = [len(own) for own in values]
    if want != got:
        raise DataError(f"state values: got {got} by trajectory; give one to each turn, {want}")
    per_turn: list[list[float]] = []
    for index, (trajectory, own) in enumerate(zip(trajectories, values, strict=True)):
        after = [*own[1:], 0.0 if final is None else final[index]]
        rewards = turn_rewards(trajectory)
        per_turn.append([r + discount * a - v for r, a, v in zip(rewards, after, own, strict=True)])
    metrics = group_metrics(trajectories, outcome_of)
    return credit_of(trajectories, repeat_over_tokens(trajectories, per_turn), metrics=metrics)


def return_from(trajectory: Trajectory, turn: int, discount: float = 1.0) -> float:
    """Return the discounted rewards of `trajectory` from turn number `turn` on."""
    rewards = turn_rewards(trajectory)[turn:]
    return sum(reward * discount**place for place, reward in enumerate(rewards))
