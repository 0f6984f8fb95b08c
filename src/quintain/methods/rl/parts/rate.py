"""How the learning rate begins: it rises over the first steps, because Adam's first ones are the least informed.

A fresh Adam moves every weight by the full rate in the direction of one noisy gradient. On a policy that just
imitated a few episodes that can undo what it knows; docs/methods/grpo.md has the measurement.
"""

from quintain.curriculum.schedules import linear

NUM_WARMING = 10
"""Steps over which the learning rate rises."""


def warming(step: int) -> float:
    """Return the factor on the learning rate at `step` (from 1): ``warming(3)`` is 3/10, from 10 on it is 1."""
    return linear(step, first=(0, 0.0), last=(NUM_WARMING, 1.0))
