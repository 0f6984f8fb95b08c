"""A = A_E + ω·A_S: the group-relative outcome plus, for states that were met more than once, a step credit.

GiGPO (arXiv 2505.10978). A_S = (G_k - mean) / (std + ε) over all turns of one task whose state was the same before
the action, with G_k the discounted return from turn k. Unit: trajectory for A_E, turn for A_S; a state visited twice
in one episode counts twice. Singleton rule: alone → 0 on both levels. With unique states this is GRPO. Where we
differ from the official code: A_E compares trajectories, so long episodes do not count more. States are keyed by task
*and* state; equal observations of two tasks never meet.
"""

from collections.abc import Sequence

from quintain.credit.discounted import returns_to_go
from quintain.credit.group import Std, group_relative, normalise
from quintain.credit.layout import credit_of, turn_rewards
from quintain.errors import DataError
from quintain.types import Credit, Group, flatten_scored


def state_anchored(
    groups: Sequence[Group],
    *,
    weight: float = 1.0,
    discount: float = 0.95,
    std: Std = "unbiased",
    epsilon: float = 1e-6,
) -> Credit:
    """Add `weight` (ω) times the advantage among equal states to `group_relative`.

    Turns whose `state_key` is None have no step credit. Raises `DataError` when no turn has a state key.
    """
    trajectories = flatten_scored(groups)
    base = group_relative(groups, std=std, epsilon=epsilon)
    places: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for index, trajectory in enumerate(trajectories):
        for number, turn in enumerate(trajectory.turns):
            if turn.state_key is not None:
                places.setdefault((trajectory.task.id, turn.state_key), []).append((index, number))
    if trajectories and not places:
        name = trajectories[0].task.environment
        raise DataError(
            f"state keys of {name}: got none; give the environment state keys or use group_relative"
        )
    to_go = [returns_to_go(turn_rewards(trajectory), discount) for trajectory in trajectories]
    steps = [[0.0] * len(trajectory.turns) for trajectory in trajectories]
    for where in places.values():
        values = normalise([to_go[i][k] for i, k in where], std=std, epsilon=epsilon)
        for (index, number), value in zip(where, values, strict=True):
            steps[index][number] = value
    advantages = [
        [array + weight * step for array, step in zip(arrays, own, strict=True)]
        for arrays, own in zip(base.advantages, steps, strict=True)
    ]
    num_turns = sum(len(trajectory.turns) for trajectory in trajectories)
    shared = sum(len(where) for where in places.values() if len(where) > 1) / max(num_turns, 1)
    kept = {name: value for name, value in base.metrics.items() if "advantage" not in name}
    return credit_of(trajectories, advantages, metrics={**kept, "credit/anchored_turns": shared})
