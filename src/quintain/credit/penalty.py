"""r_t = -β·(log π_behaviour(y_t) - log π_ref(y_t)): the KL to a reference as a reward of each token.

The k1 estimate in the reward (InstructGPT, arXiv 2203.02155; REINFORCE++, 2501.03262): its gradient, through the
return, is that of the KL of the whole episode. In the loss instead: `quintain.losses.kl`. Unit: token; nothing is
normalised. Singleton rule: none needed. The log-probs are those at sampling, so that the reward is what the policy
earned then.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from quintain.credit.layout import TokenArrays, check_arrays, outcome_of
from quintain.errors import DataError
from quintain.types import Group, Score, Trajectory, flatten_scored


def kl_rewards(
    groups: Sequence[Group], reference_logprobs: TokenArrays, *, coefficient: float
) -> list[list[NDArray[np.float64]]]:
    """Return -`coefficient`·(log π - log π_ref) of every sampled token of the scored trajectories, in order.

    Give the result as `token_rewards`. Raises `DataError` for trajectories without log-probs.
    """
    trajectories = flatten_scored(groups)
    reference = check_arrays(trajectories, reference_logprobs, "reference log-probs")
    result: list[list[NDArray[np.float64]]] = []
    for trajectory, arrays in zip(trajectories, reference, strict=True):
        if any(len(turn.completion.logprobs) != len(turn.completion.token_ids) for turn in trajectory.turns):
            raise DataError(
                f"log-probs of {trajectory.task.id}: got none; a KL reward needs sampled episodes"
            )
        own = [np.array(turn.completion.logprobs) for turn in trajectory.turns]
        result.append([-coefficient * (a - b.astype(np.float64)) for a, b in zip(own, arrays, strict=True)])
    return result


def add_token_rewards(groups: Sequence[Group], token_rewards: TokenArrays) -> list[Group]:
    """Return `groups` with `token_rewards` added: their sum over a turn to its reward, over an episode to its outcome.

    That is the KL of the whole episode as part of its reward (RLOO, arXiv 2402.14740); a turn's share is added to
    the reward of the turn, so that it reaches credit of either kind. `token_rewards` are those of the scored
    trajectories, in order.
    """
    trajectories = flatten_scored(groups)
    own = check_arrays(trajectories, token_rewards, "token rewards")
    extra = {
        id(t): [float(array.sum()) for array in turns] for t, turns in zip(trajectories, own, strict=True)
    }

    def change(trajectory: Trajectory) -> Trajectory:
        if id(trajectory) not in extra:
            return trajectory
        more = extra[id(trajectory)]
        outcome = replace(cast(Score, trajectory.outcome), value=outcome_of(trajectory) + sum(more))
        turns = tuple(
            replace(turn, reward=turn.reward + own) for turn, own in zip(trajectory.turns, more, strict=True)
        )
        return replace(trajectory, outcome=outcome, turns=turns)

    return [replace(group, trajectories=tuple(map(change, group.trajectories))) for group in groups]
