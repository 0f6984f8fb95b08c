"""A few random steps of an environment before anything is written for it.

What a user's world breaks at once is told at once: as an `EnvironmentFault` with the way to look closer. The one
rule: every call has a deadline.
"""

import random
import traceback
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from quintain.environments.baselines import random_action
from quintain.environments.catalog import Recipe, find
from quintain.environments.protocol import Environment, advance, begin
from quintain.errors import EnvironmentFault, QuintainError
from quintain.rollout.stepper import Stepper
from quintain.types import Failure

DEADLINE = 60.0
"""Seconds that the rehearsal may take."""
NUM_STEPS = 5


def ready(spec: str | type[Environment]) -> Recipe:
    """Return how to build the environment `spec`, after a rehearsal.

    Raises:
        UsageError: there is no such environment.
        MissingExtra: its package is not installed.
        EnvironmentFault: it cannot be imported or built, raises, hangs, or returns what it must not.
    """
    recipe = named(spec)
    with blamed(recipe.spec):
        environment = recipe()
    (result,) = Stepper(timeout=DEADLINE).run([lambda: rehearse(recipe.spec, environment)])
    if isinstance(result, Failure):
        is_told = result.message.startswith(f"environment {recipe.spec}: ")
        what = (
            result.message
            if is_told
            else f"environment {recipe.spec}: got {result.message}; {look(recipe.spec)}"
        )
        raise EnvironmentFault(what)
    return recipe


def named(spec: str | type[Environment]) -> Recipe:
    """Return how to build the environment `spec`; what its file raises is its own fault."""
    with blamed(str(spec)):
        return find(spec)


@contextmanager
def blamed(spec: str) -> Generator[None]:
    """Turn what is raised within into an `EnvironmentFault` of the environment `spec`, errors of ours aside."""
    try:
        yield
    except QuintainError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}{place(error)}"
        raise EnvironmentFault(f"environment {spec}: got {what}; {look(spec)}") from error


def place(error: Exception) -> str:
    """Return the file and line that `error` was raised at."""
    if isinstance(error, SyntaxError):
        return ""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f" ({Path(frame.filename).name}, line {frame.lineno})"


def look(spec: str) -> str:
    """Return how to look closer."""
    return f"repair it, then `quintain check {spec}`"


def rehearse(spec: str, environment: Environment) -> int:
    """Take a few random steps, close `environment`, and return how many steps it took."""
    rng = random.Random(0)
    with blamed(spec), closing(environment):
        begin(environment, environment.task("train", 0))
        for step in range(NUM_STEPS):
            result = advance(environment, random_action(environment, rng))
            if result.is_terminated or result.is_truncated:
                return step + 1
    return NUM_STEPS
