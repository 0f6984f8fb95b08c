"""What the frozen starting policy says of the episodes of a step: log-probs, and the KL as a reward."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit.penalty import kl_rewards
from quintain.data.samples import imitation_samples
from quintain.training.work import Work
from quintain.types import Group, Trajectory

Nested = list[list[NDArray[np.floating]]]


def nested(numbers: NDArray[np.floating], trajectories: Sequence[Trajectory]) -> Nested:
    """Return `numbers`, one for each sampled token in order, as [trajectory][turn] → [tokens]."""
    counts = [[len(turn.completion.token_ids) for turn in t.turns] for t in trajectories]
    ends = np.cumsum([sum(turns) for turns in counts])
    chains = np.split(numbers, ends[:-1])
    return [np.split(chain, np.cumsum(turns)[:-1]) for chain, turns in zip(chains, counts, strict=True)]


def reference_logprobs(work: Work, groups: Sequence[Group]) -> Nested:
    """Return the reference's log-probs of the sampled tokens of the scored trajectories of `groups`."""
    trajectories = [trajectory for group in groups for trajectory in group.scored]
    if not trajectories:
        return []
    parts: list[torch.Tensor] = []
    for batch in work.batches(imitation_samples(trajectories)):
        parts.append(work.learner.reference_logprobs(batch)[batch.turn_id >= 0])
    return nested(torch.cat(parts).numpy(), trajectories)


def kl_in_reward(work: Work, groups: Sequence[Group], coefficient: float) -> Nested | None:
    """Return -coefficient·(log π - log π_ref) per token; None for a coefficient of 0."""
    if not coefficient:
        return None
    rewards = kl_rewards(groups, reference_logprobs(work, groups), coefficient=coefficient)
    return [list(turns) for turns in rewards]
