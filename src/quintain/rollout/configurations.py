"""Configurations of a world that somebody writes for its agent's weak skills (EnvGen, arXiv 2403.12014).

Whoever writes them, a draw or a model behind an endpoint, is told what skills there are, what a configuration may say,
how well the agent does in the original world, and which configurations it learned in last. What does not fit the
schema, hands its skill over or cannot be solved by the world's own expert is refused, and said why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol, cast, runtime_checkable

from quintain.curriculum.skills import Known, Report
from quintain.engines.chat_client import ChatClient, ChatSpec
from quintain.environments.baselines import expert, play
from quintain.environments.protocol import Configurable, Environment, Expert, begin, environment_name
from quintain.errors import DataError, QuintainError, UsageError
from quintain.processes.http_json import HttpTrouble
from quintain.types import Task, derive_seed

RULES = (
    "You design practice worlds for an agent that learns to act. The user message is JSON: the skills that are to be "
    "learned, the JSON schema of a configuration, how often the agent succeeds at each skill in the original world "
    "(success, its standard error, and how many tries that rests on), the configurations that it learned in last, and "
    "how many you are to write. A configuration lays a world out for one skill: what the agent starts with and how "
    "things lie about. Help it with what it fails at: bring it near, by handing over what comes before, but never hand "
    "over the skill itself, and leave each world solvable. Answer with that many JSON objects, each in a block of its "
    "own between ```json and ```, and nothing else between these."
)
MAX_TOKENS = 2_048
MOST_READ = 64
"""Objects of an answer that are looked at."""
NUM_TRIED = 3
"""Training tasks on which the expert has to succeed."""
ATTEMPTS = 200
"""Draws after which it is said that no configuration of a skill can be solved."""


@runtime_checkable
class ConfigurableWorld(Configurable, Expert, Protocol):
    """An environment that can be laid out, and knows whether that can be solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of what was written: ``Written(sound=(data,), refused=("…",))``."""

    sound: tuple[Mapping[str, Any], ...]
    """the data of tasks that each configuration lays out"""
    refused: tuple[str, ...] = ()
    """why others are none"""


def as_configurable(environment: Environment) -> ConfigurableWorld:
    """Return `environment` as one that can be laid out.

    Raises:
        UsageError: it cannot, or has no expert to say whether a layout can be solved.
    """
    if not isinstance(environment, ConfigurableWorld):
        raise UsageError(
            f"configurations of {environment_name(environment)}: got one that cannot be laid out, or without "
            "an expert; give it the methods of Configurable and expert_action(), or use grpo"
        )
    return environment


class Designer:
    """A model behind a chat endpoint that writes configurations: ``Designer("http://127.0.0.1:8000/v1?model=qwen")``.

    Without a tape, a step that is broken off and begun again asks again.

    Raises:
        UsageError: it is no such spec.
    """

    def __init__(self, spec: str) -> None:
        self._spec = ChatSpec.read(spec, asked="generator")
        self._client: ChatClient | None = None

    def write(
        self, world: Configurable, report: Report, last: Sequence[Mapping[str, Any]], count: int, seed: int
    ) -> list[object]:
        """Return what it writes when it is told of `report` and `last`, unchecked: JSON objects, as many as it likes.

        Raises:
            DataError: the endpoint does not answer.
        """
        client = self._client = self._client or self._spec.client()
        asked = {
            "skills": list(world.skills()),
            "schema": world.configuration_schema(),
            "success": {skill: tell_known(report.get(skill, Known())) for skill in world.skills()},
            "last": list(last),
            "count": count,
        }
        messages = [
            {"role": "system", "content": RULES},
            {"role": "user", "content": json.dumps(asked, ensure_ascii=False)},
        ]
        number = derive_seed("configurations", seed)
        try:
            text = client.ask(
                messages, temperature=self._spec.temperature, max_tokens=MAX_TOKENS, number=number
            )
        except HttpTrouble as trouble:
            raise DataError(f"generator at {client.url}: got {trouble.got}; check the endpoint") from trouble
        return list(read_objects(text))


def tell_known(known: Known) -> Mapping[str, float]:
    """Return how well a skill is known, as whoever writes configurations is told."""
    share = known.successes / known.tries if known.tries else 0.0
    return {"success": round(share, 3), "error": round(known.error, 3), "tries": known.tries}


def read_objects(text: str) -> Iterator[object]:
    """Yield the JSON objects in `text`, wherever they stand, those of a list one by one; what is none is passed over.

    What stands inside another object is part of it. At most `MOST_READ`.
    """
    decoder, place, left = json.JSONDecoder(), 0, MOST_READ
    while left and (place := text.find("{", place)) >= 0:
        try:
            found, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        yield found
        left, place = left - 1, end


def check_configurations(
    environment: Environment, written: Iterable[object], tasks: Sequence[Task], count: int
) -> Written:
    """Return the first `count` of what was `written` that lay a world out which the expert solves on each of `tasks`.

    Raises:
        UsageError: the environment cannot be laid out.
    """
    world = as_configurable(environment)
    sound: list[Mapping[str, Any]] = []
    refused: list[str] = []
    for each in written:
        if len(sound) == count:
            break
        try:
            if not isinstance(each, Mapping):
                raise UsageError(f"configuration: got {type(each).__name__}; write a JSON object")
            data = world.configure(cast(Mapping[str, Any], each))
            require_solvable(environment, data, tasks)
        except QuintainError as error:
            refused.append(str(error))
        else:
            sound.append(data)
    return Written(sound=tuple(sound), refused=tuple(refused))


def require_solvable(environment: Environment, data: Mapping[str, Any], tasks: Sequence[Task]) -> None:
    """Raise a `UsageError` where the expert does not solve one of `tasks` with `data` in the place of its own."""
    for task in tasks:
        if not play(environment, replace(task, data={**task.data, **data}), expert).is_success:
            raise UsageError(
                f"configuration {json.dumps(dict(data), default=dict)}: got a world that its expert does not solve; "
                "let more lie about, or hand over more"
            )


def draw_configurations(
    environment: Environment, skills: Sequence[str], tasks: Sequence[Task], seed: int
) -> list[Mapping[str, Any]]:
    """Return the data of a configuration for each of `skills`, drawn until the expert solves it.

    Raises:
        UsageError: none of `ATTEMPTS` of a skill can be solved.
    """
    world = as_configurable(environment)
    found: list[Mapping[str, Any]] = []
    for number, skill in enumerate(skills):
        rng = Random(derive_seed("configuration", seed, number))
        drawn = (world.draw_configuration(skill, rng) for _ in range(ATTEMPTS))
        made = check_configurations(environment, drawn, tasks, 1)
        if not made.sound:
            raise UsageError(
                f"configurations for {skill}: got {ATTEMPTS} that cannot be solved, the last: {made.refused[-1]}"
            )
        found += made.sound
    return found


def skills_of(make: Callable[[], Environment], tasks: Sequence[Task]) -> list[str]:
    """Return the skill that each of `tasks` asks for."""
    with closing(make()) as environment:
        world = as_configurable(environment)
        found: list[str] = []
        for task in tasks:
            begin(environment, task)
            found.append(world.skill())
        return found
