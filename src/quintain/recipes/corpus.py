"""What an environment, its expert and random valid actions write: the text a tiny tokenizer is trained on."""

import json
from collections.abc import Iterator
from random import Random

from quintain.environments.baselines import random_action, telling
from quintain.environments.protocol import Environment, Expert, Factory, advance, begin
from quintain.errors import EnvironmentFault
from quintain.text.parse import write_tool_calls
from quintain.types import Action, as_text, derive_seed

NUM_EPISODES = 96
"""Episodes of random valid actions, and as many of the expert."""


def corpus(make_environment: Factory, seed: int) -> Iterator[str]:
    """Yield texts of training episodes, instructions and tool schemas first."""
    environment = make_environment()
    has_expert = isinstance(environment, Expert)
    try:
        yield environment.instructions()
        for tool in environment.tools():
            yield json.dumps(
                {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            )
        for index in range(NUM_EPISODES):
            for by_expert in (False, True) if has_expert else (False,):
                yield from _episode(environment, index, Random(derive_seed(seed, "corpus", index)), by_expert)
    finally:
        environment.close()


def _episode(environment: Environment, index: int, rng: Random, by_expert: bool) -> Iterator[str]:
    """Yield what is written in one episode; an expert that gives up ends it."""
    task = environment.task("train", index)
    yield task.prompt
    told = as_text(begin(environment, task))
    yield told
    for _ in range(environment.max_turns):
        try:
            action = _action(environment, rng, told, by_expert)
        except EnvironmentFault:
            return
        yield written(action)
        result = advance(environment, action)
        yield as_text(result.observation)
        told = telling((told, result.observation))
        if result.is_terminated or result.is_truncated:
            return


def _action(environment: Environment, rng: Random, told: str, by_expert: bool) -> Action:
    """Return the next action of the expert or of chance."""
    if by_expert:
        assert isinstance(environment, Expert), "asked only where there is an expert"
        return environment.expert_action()
    return random_action(environment, rng, told)


def written(action: Action) -> str:
    """Return `action` as the policy would write it."""
    return write_tool_calls(action.tool_calls) if action.tool_calls else action.text
