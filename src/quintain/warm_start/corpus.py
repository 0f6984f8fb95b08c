"""What an environment, its expert and random valid actions write: the text a tiny tokenizer is trained on."""

import json
from collections.abc import Iterator
from functools import partial
from itertools import product
from random import Random
from typing import cast

from quintain.environments.baselines import find_range_text, random_action
from quintain.environments.boundary import ask, call_within, check_instructions, check_tools, spec_of
from quintain.environments.protocol import Environment, Expert, Factory, advance, begin
from quintain.errors import EnvironmentFault
from quintain.rollout.stepper import Stepper
from quintain.text.parse import write_tool_calls
from quintain.types import Action, Failure, as_text, derive_seed

NUM_EPISODES = 96
"""Episodes of random valid actions, and as many of the expert."""
TIMEOUT = 60.0
"""Seconds that an episode may take."""
MAX_FAILURES = 4
"""Failed episodes that are left out; one more stops the run."""


def corpus(make_environment: Factory, seed: int) -> Iterator[str]:
    """Yield texts of training episodes, instructions and tool schemas first."""
    texts, has_expert = ask(make_environment, describe_environment)
    yield from texts
    players = (False, True) if has_expert else (False,)
    stepper = Stepper(timeout=TIMEOUT)
    spec = spec_of(make_environment)
    environment, num_failed = call_within(spec, make_environment), 0
    for index, by_expert in product(range(NUM_EPISODES), players):
        rng = Random(derive_seed(seed, "corpus", index))
        (texts,) = stepper.run([partial(_episode, environment, index, rng, by_expert)])
        if not isinstance(texts, Failure):
            for text in cast("list[object]", texts):
                if not isinstance(text, str):
                    raise EnvironmentFault(
                        f"reading what the environment {spec} writes: got {type(text).__name__} as the prompt of a "
                        "task, a legal action or the text of an expert's; give texts"
                    )
                yield text
            continue
        num_failed += 1
        if num_failed > MAX_FAILURES:
            raise EnvironmentFault(
                f"reading what the environment writes: got {num_failed} failed episodes, the last by "
                f"{texts.kind}: {texts.message}; repair it, then `quintain check` it"
            )
        stepper.run([environment.close])
        environment = call_within(spec, make_environment)
    stepper.run([environment.close])


def describe_environment(environment: Environment) -> tuple[list[str], bool]:
    """Return instructions, tool schemas and what only later tasks say, and whether there is an expert."""
    tools = [
        json.dumps({"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)})
        for tool in check_tools(environment)
    ]
    told = [check_instructions(environment), *tools, *environment.later_words]
    return told, isinstance(environment, Expert)


def _episode(environment: Environment, index: int, rng: Random, by_expert: bool) -> list[str]:
    """Return what is written in one episode; an expert that gives up ends it."""
    task = environment.task("train", index)
    told = as_text(begin(environment, task))
    texts = [task.prompt, told]
    for _ in range(environment.max_turns):
        try:
            action = _action(environment, rng, told, by_expert)
        except EnvironmentFault:
            break
        texts.append(write_action(action))
        result = advance(environment, action)
        texts.append(as_text(result.observation))
        told = find_range_text((told, result.observation))
        if result.is_over:
            break
    return texts


def _action(environment: Environment, rng: Random, told: str, by_expert: bool) -> Action:
    """Return the next action of the expert or of chance."""
    if by_expert:
        assert isinstance(environment, Expert), "asked only where there is an expert"
        return environment.expert_action()
    return random_action(environment, rng, told)


def write_action(action: Action) -> str:
    """Return `action` as the policy would write it."""
    return write_tool_calls(action.tool_calls) if action.tool_calls else action.text
