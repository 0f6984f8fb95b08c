"""w_t = s_k / (n·len_k): each of the n segments of an episode weighs by its score, whatever its length: EPO's loss.

EPO, explicit policy optimisation (arXiv 2502.12486): L = -(1/n) Σ_k s_k (1/len_k) Σ_t log π, with s_k the discounted
process rewards of the turns, divided by the largest of the episode in size. The result is credit for
`quintain.losses.imitation.imitate_weighted`, summed per trajectory. Unit: turn, within its episode. Singleton rule:
a single turn has score ±1 (or 0). A long strategy counts as much as a short one.
"""

from collections.abc import Sequence

import numpy as np

from quintain.credit.discounted import returns_to_go
from quintain.credit.layout import credit_of, group_metrics, outcome_of
from quintain.errors import DataError
from quintain.types import Credit, Group, flatten_scored


def segment_scores(rewards: Sequence[float], discount: float = 0.99) -> list[float]:
    """Return the discounted sums of `rewards` from each on, over the largest in size: 0, 0, 1 → .9801, .99, 1."""
    sums = returns_to_go(rewards, discount)
    most = max(map(abs, sums), default=0.0)
    return [value / most for value in sums] if most else [0.0] * len(sums)


def segment_weights(
    groups: Sequence[Group], rewards: Sequence[Sequence[float]], *, discount: float = 0.99
) -> Credit:
    """Return the weights of all sampled tokens; `rewards[trajectory][turn]` are those of the scored, in order.

    Raises `DataError` when a trajectory has not one reward for every turn.
    """
    trajectories = flatten_scored(groups)
    if [len(t.turns) for t in trajectories] != [len(own) for own in rewards]:
        raise DataError(
            f"process rewards: got {[len(own) for own in rewards]} by trajectory; give one to each turn, "
            f"{[len(t.turns) for t in trajectories]}"
        )
    weights = [
        [
            np.full(num := len(turn.completion.token_ids), score / (len(own) * max(num, 1)))
            for turn, score in zip(trajectory.turns, segment_scores(own, discount), strict=True)
        ]
        for trajectory, own in zip(trajectories, rewards, strict=True)
    ]
    return credit_of(trajectories, weights, metrics=group_metrics(trajectories, outcome_of))
