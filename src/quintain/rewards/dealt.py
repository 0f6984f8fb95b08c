"""R_i = R of another episode of the group, drawn by chance: rewards dealt out anew, the control of a reward.

What a policy learns from rewards that were dealt out is what it learns from anything but them: each group pays as much
as it did, to whom chance will have it, so that advantages have the sizes they had and say nothing of what was done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from quintain.rewards.terms import Term, apply
from quintain.types import Group, Score, derive_seed


def dealt_out(groups: Sequence[Group], *, seed: int) -> list[Group]:
    """Return `groups` in which the scored episodes of each have exchanged their rewards, always in the same way.

    An episode gets its reward in the last turn. Whether it solved its task stays as it was.

    Example: rewards 1, 0, 0, 1 of a group may become 0, 1, 0, 1.
    """
    return [_dealt(group, random.Random(derive_seed("dealt out", seed, group.task.id))) for group in groups]


def _dealt(group: Group, chance: random.Random) -> Group:
    rewards = [each.outcome.value for each in group.trajectories if isinstance(each.outcome, Score)]
    chance.shuffle(rewards)
    left = iter(rewards)
    term = Term(name="dealt_out", measure=lambda _: next(left))
    return replace(group, trajectories=tuple(apply(each, [term]) for each in group.trajectories))
