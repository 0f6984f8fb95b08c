"""A few random steps of an environment before anything is written for it.

An environment that breaks at once is reported at once, as an `EnvironmentFault` that says how to look closer. A grader
that is a server is asked once, since random steps may never come to an end. Every call has a deadline.
"""

import random
from collections.abc import Sequence
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
from quintain.environments.catalog import EnvironmentSpec, WithTasks, find
from quintain.environments.protocol import AsksGrader, Environment, advance, begin
from quintain.environments.task_files import refuse_untaken
from quintain.errors import UsageError
from quintain.types import Image, Observation

DEADLINE = 60.0
"""Seconds that the rehearsal may take."""
NUM_STEPS = 5


def find_ready(
    spec: str | type[Environment], *, for_training: bool = False, for_model: bool = False
) -> EnvironmentSpec:
    """Return how to build the environment `spec`, after a rehearsal.

    Raises:
        UsageError: there is no such environment, it is not for training, or it shows pictures and is for a model.
        MissingExtra: its package is not installed.
        EnvironmentFault: it cannot be imported or built, raises, hangs, or returns what it must not.
    """
    recipe = find_or_blame(spec)
    call_within(
        recipe.spec,
        lambda: rehearse(recipe, for_training=for_training, for_model=for_model),
        seconds=DEADLINE,
    )
    return recipe


def find_or_blame(spec: str | type[Environment]) -> EnvironmentSpec:
    """Return how to build the environment `spec`; what its file raises is its own fault."""
    with blame(str(spec)):
        return find(spec)


def rehearse(recipe: EnvironmentSpec, *, for_training: bool = False, for_model: bool = False) -> int:
    """Build an environment, take a few random steps, close it, and return how many steps it took.

    Raises:
        UsageError: it shows pictures, and is for a model.
    """
    rng = random.Random(0)
    with closing(recipe()) as environment:
        if for_training:
            refuse_training(environment)
        check_instructions(environment)
        check_tools(environment)
        seen = [begin(environment, environment.task("train", 0))]
        for _ in range(NUM_STEPS):
            result = advance(environment, random_action(environment, rng))
            seen.append(result.observation)
            if result.is_over:
                break
        if isinstance(environment, AsksGrader):
            environment.probe_grader()
        check_acts(environment)
        if isinstance(recipe, WithTasks):
            refuse_untaken(environment, recipe.path)
        if for_model:
            refuse_pictures(recipe.spec, seen)
    return len(seen) - 1


def refuse_pictures(spec: str, observations: Sequence[Observation]) -> None:
    """Refuse an environment whose `observations` hold pictures: models are read as text only.

    Raises:
        UsageError: there is one.
    """
    parts = [part for each in observations if not isinstance(each, str) for part in each]
    picture = next((part for part in parts if isinstance(part, Image)), None)
    if picture is not None:
        raise UsageError(
            f"environment {spec}: got an observation with a picture ({picture.media_type}) for a model that reads text "
            "only; turn pictures off in the environment's options, or tell in words what they show"
        )
