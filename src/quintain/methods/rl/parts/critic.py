"""What the critic says of the episodes of a step, before it is trained on them."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from quintain.credit.gae import Critic
from quintain.data.samples import imitation_samples
from quintain.errors import UsageError
from quintain.methods.rl.parts.reference import nested
from quintain.training.work import Work
from quintain.types import Group


def critic(work: Work, groups: Sequence[Group]) -> Critic:
    """Return the values of the sampled tokens, and one per trajectory for the state after a truncation.

    A token's value is that of the state before it is sampled. The state after the last turn has no token; the
    value before the last sampled one stands for it.

    Raises:
        UsageError: the policy has no value head; also where there are no episodes, which a start is checked with.
    """
    if work.learner.value_head is None:
        raise UsageError(
            "values of a critic: got a policy without a value head; say needs=Needs(critic=True) in the method"
        )
    trajectories = [trajectory for group in groups for trajectory in group.scored]
    if not trajectories:
        return Critic(values=[], final=[])
    parts: list[torch.Tensor] = []
    for batch in work.batches(imitation_samples(trajectories)):
        parts.append(cast(torch.Tensor, work.learner.infer(batch).values)[batch.turn_id >= 0])
    values = nested(torch.cat(parts).numpy(), trajectories)
    return Critic(values=values, final=[float(np.concatenate(turns)[-1]) for turns in values])
