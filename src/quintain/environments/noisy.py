"""An expert that makes mistakes, for demonstrations that are not perfect; and text that says nothing.

``noisy(0.3)`` acts as the expert of any environment does, but in 30 % of the turns does something else that the
environment accepts: what `Fallible.mistaken_action` calls a typical mistake, else a random valid action. It fits
``rollout.demonstrations(tasks, noisy(0.3), seed=0)``; ``noisy_policy(0.3, seed=0)`` is the same for `baselines.play`.
``make_idler(0.4, 3)`` dawdles where its style is to, and ``single_method("direct")`` does all tasks in one way:
teachers whose faults are known. `chatter` makes observations longer. Chance comes from the caller's counter, so that
noise changes neither tasks nor environments.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from quintain.environments.baselines import Policy, find_range_text, random_action
from quintain.environments.protocol import Environment, Expert, environment_name
from quintain.errors import UsageError, suggestion
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


@runtime_checkable
class Idle(Protocol):
    """The environment has an action that does nothing but pass time."""

    def idle_action(self) -> Action:
        """Return a legal action without effect on the task; change nothing."""
        ...


@runtime_checkable
class Methodical(Protocol):
    """The environment knows several ways to go about its tasks, none of which is right for all of them."""

    def methods(self) -> tuple[str, ...]:
        """Return the names of the ways."""
        ...

    def act_by(self, method: str, rng: random.Random) -> Action:
        """Return the next action of one who goes about all tasks by `method`; change nothing."""
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


def make_idler(rate: float, style: int) -> NoisyExpert:
    """Return a demonstrator that does as the expert, and nothing in about the share `rate` of its turns.

    Where it dawdles, and for how long, is its `style`: before one, a half or a third of the expert's different actions,
    drawn by the number of the style, in runs that are the longer the fewer these are.

    Raises:
        UsageError: `rate` is not below 1; or, when it acts, the environment has no expert or no idle action.
    """
    if not 0 <= rate < 1:
        raise UsageError(f"rate of idle turns: got {rate}; give a number from 0 to below 1")
    one_in = 1 + style % 3
    # A run at one in n actions is n times as long, so that all styles idle alike on the whole.
    length = one_in * rate / (1 - rate)

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        if not isinstance(environment, Expert) or not isinstance(environment, Idle):
            name = environment_name(environment)
            raise UsageError(
                f"a padded teacher: got {name}, which lacks an expert or an idle action; define expert_action and "
                "idle_action"
            )
        action = environment.expert_action()
        is_place = derive_seed("style", style, action.text, str(action.tool_calls)) % one_in == 0
        return environment.idle_action() if rng.random() < length / (1 + length) and is_place else action

    return act


def single_method(method: str) -> NoisyExpert:
    """Return a demonstrator that goes about every task by `method`, whether it fits or not.

    Raises:
        UsageError: when it acts, the environment does not know the method.
    """

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        known = environment.methods() if isinstance(environment, Methodical) else ()
        if method not in known:
            raise UsageError(
                f"a teacher of one method: got {method!r} in {environment_name(environment)}; "
                f"{suggestion(method, known) if known else 'it has none: define methods and act_by'}"
            )
        assert isinstance(environment, Methodical), "it knows the method"
        return environment.act_by(method, rng)

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
