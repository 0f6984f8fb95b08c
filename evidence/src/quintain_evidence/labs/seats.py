"""A scripted seat: an executor of hints, who stands where an experiment must know how often a hint is followed."""

import random
from collections.abc import Callable, Sequence

from quintain.environments.baselines import find_range_text, random_action
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.types import Action, Observation

Do = Callable[[Environment, str], Action | None]
"""(environment, hint) → the action that follows the hint; None where it means nothing here"""
Executor = Callable[[Environment, random.Random, Sequence[Observation]], Action]


def executor(do: Do, hint: Callable[[Sequence[Observation]], str], *, follows: float = 1.0) -> Executor:
    """Return a demonstrator that does what the newest hint says with probability `follows`, else anything valid.

    `hint` reads the hint out of what was seen; an executor with `follows` 0 is deaf.
    """
    if not 0 <= follows <= 1:
        raise UsageError(f"hints that are followed: got {follows}; give a number from 0 to 1")

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        drawn, seed = rng.random(), rng.getrandbits(62)
        found = do(environment, hint(seen)) if drawn < follows else None
        return found or random_action(environment, random.Random(seed), find_range_text(seen))

    return act
