"""A few random steps of an environment before anything is written for it.

An environment that breaks at once is reported at once, as an `EnvironmentFault` that says how to look closer. Every
call has a deadline.
"""

import random
from contextlib import closing

from quintain.environments.baselines import random_action
from quintain.environments.boundary import (
    blame,
    call_within,
    check_acts,
    check_instructions,
    check_tools,
    refuse_training,
)
from quintain.environments.catalog import EnvironmentSpec, find
from quintain.environments.protocol import Environment, advance, begin

DEADLINE = 60.0
"""Seconds that the rehearsal may take."""
NUM_STEPS = 5


def find_ready(spec: str | type[Environment], *, for_training: bool = False) -> EnvironmentSpec:
    """Return how to build the environment `spec`, after a rehearsal.

    Raises:
        UsageError: there is no such environment, or it is not for training.
        MissingExtra: its package is not installed.
        EnvironmentFault: it cannot be imported or built, raises, hangs, or returns what it must not.
    """
    recipe = find_or_blame(spec)
    call_within(recipe.spec, lambda: rehearse(recipe, for_training=for_training), seconds=DEADLINE)
    return recipe


def find_or_blame(spec: str | type[Environment]) -> EnvironmentSpec:
    """Return how to build the environment `spec`; what its file raises is its own fault."""
    with blame(str(spec)):
        return find(spec)


def rehearse(recipe: EnvironmentSpec, *, for_training: bool = False) -> int:
    """Build an environment, take a few random steps, close it, and return how many steps it took."""
    rng = random.Random(0)
    with closing(recipe()) as environment:
        if for_training:
            refuse_training(environment)
        check_instructions(environment)
        check_tools(environment)
        begin(environment, environment.task("train", 0))
        for step in range(NUM_STEPS):
            result = advance(environment, random_action(environment, rng))
            if result.is_terminated or result.is_truncated:
                return step + 1
        check_acts(environment)
    return NUM_STEPS
