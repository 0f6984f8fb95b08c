"""An expert that makes mistakes, for demonstrations that are not perfect; and text that says nothing.

``noisy(0.3)`` acts as the expert of any environment does, but in 30 % of the turns does something else that the
environment accepts: what `Fallible.mistaken_action` calls a typical mistake, else a random valid action. It fits
``rollout.demonstrations(tasks, noisy(0.3), seed=0)``; ``noisy_policy(0.3, seed=0)`` is the same for `baselines.play`.
`chatter` makes observations longer. Chance comes from the caller's counter, so that noise changes neither tasks nor
environments.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from quintain.environments.baselines import Policy, find_range_text, random_action
from quintain.environments.protocol import Environment, Expert, environment_name
from quintain.errors import UsageError
from quintain.types import Action, Observation, derive_seed

NoisyExpert = Callable[[Environment, random.Random, Sequence[Observation]], Action]
"""(environment, source of chance, observations of the episode so far) → action: a demonstrator"""

SUBJECTS = ("The radio", "A neighbour", "The weather", "A dog", "The clock", "A train", "The wind", "A child")
VERBS = ("is near", "is loud", "is late", "was here", "is far away", "is quiet", "came back", "is slow")


@runtime_checkable
class Fallible(Protocol):
    """The environment knows what mistakes are typical: plausible actions that the expert would not take."""

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return a valid action that is likely a mistake; change nothing."""
        ...


def noisy(rate: float) -> NoisyExpert:
    """Return a demonstrator that takes the expert's action, or with probability `rate` another one.

    Raises:
        UsageError: `rate` is no probability; or, when it acts, the environment has no expert.
    """
    if not 0 <= rate <= 1:
        raise UsageError(f"rate of mistakes: got {rate}; give a number from 0 to 1")

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        if not isinstance(environment, Expert):
            name = environment_name(environment)
            raise UsageError(f"a noisy expert: got {name}, which has no expert; define expert_action")
        # Both numbers are drawn in every turn: a higher rate errs in the same turns, and in more.
        errs, seed = rng.random() < rate, rng.getrandbits(62)
        return _mistake(environment, random.Random(seed), seen) if errs else environment.expert_action()

    return act


def noisy_policy(rate: float, seed: int) -> Policy:
    """Return the policy of `noisy` for `baselines.play`, the same for the same seed."""
    rng, act = random.Random(seed), noisy(rate)
    return lambda environment, observation: act(environment, rng, (observation,))


def chatter(count: int, *coordinates: int | str) -> str:
    """Return `count` sentences that say nothing of the task, each after a blank; `coordinates` name the draw.

    Example: ``chatter(1, task.seed, turn)`` is ``" A dog is loud."`` or the like; ``chatter(0)`` is empty.
    """
    if not count:
        return ""
    rng = random.Random(derive_seed("chatter", *coordinates))
    return "".join(f" {rng.choice(SUBJECTS)} {rng.choice(VERBS)}." for _ in range(count))


def _mistake(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
    """Return a valid action that owes nothing to the expert."""
    if isinstance(environment, Fallible):
        return environment.mistaken_action(rng)
    return random_action(environment, rng, find_range_text(seen))
