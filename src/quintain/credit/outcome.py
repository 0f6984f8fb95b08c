"""A_t = R - b: the return of the episode, on every token that was sampled in it.

REINFORCE over whole episodes (Williams 1992); the baseline b is a number the caller knows before the episode. Unit:
none, nothing is estimated here. Singleton rule: none needed; R itself is the credit. A turn reward of 0 does not mean
no credit; the outcome reaches every turn.
"""

from collections.abc import Sequence

from quintain.credit.layout import credit_of, group_metrics, outcome_of, repeat_over_tokens
from quintain.types import Credit, Group, flatten_scored


def outcome_return(groups: Sequence[Group], *, baseline: float = 0.0) -> Credit:
    """Give every sampled token the undiscounted return of its episode less `baseline`.

    Example: an episode of two turns with return 1 → 1 on all of its tokens, those of the first turn included.
    """
    trajectories = flatten_scored(groups)
    per_turn = [[outcome_of(trajectory) - baseline] * len(trajectory.turns) for trajectory in trajectories]
    return credit_of(
        trajectories,
        repeat_over_tokens(trajectories, per_turn),
        metrics=group_metrics(trajectories, outcome_of),
    )
