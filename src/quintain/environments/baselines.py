"""The policies that every environment is measured against: doing nothing, acting at random, and its own expert.

A random action is legal where the environment lists what is legal, and fits the schema where it has tools, so that a
random score says something of the task and not of its syntax.
"""

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from quintain.environments.protocol import (
    Environment,
    Expert,
    Legal,
    PlaysWell,
    Scripted,
    Snapshot,
    advance,
    begin,
    environment_name,
)
from quintain.errors import UsageError
from quintain.types import Action, Observation, Task, ToolCall, as_text

INTEGER = re.compile(r"-?\b\d{1,9}\b")
WORD = re.compile(r"[A-Za-z]+")
Policy = Callable[[Environment, str], Action]
"""(environment, text of the last observation, or of the last that names a range) → action"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What happened in an episode: ``Episode(observations=("a", "b"), rewards=(1.0,), ...)``."""

    observations: tuple[Observation, ...]
    """One more than there are actions."""
    rewards: tuple[float, ...]
    """of each step, as the episode as a whole is judged; see `StepResult.reward`"""
    paid: tuple[Mapping[str, float], ...] = ()
    """by seat, of each step"""
    ends: tuple[tuple[bool, bool, bool | None, bool], ...]
    """is_terminated, is_truncated, is_success and is_valid of each step"""
    is_success: bool
    seconds: float

    @property
    def total(self) -> float:
        """Undiscounted return."""
        return sum(self.rewards)


def play(environment: Environment, task: Task, policy: Policy, max_turns: int = 0) -> Episode:
    """Play an episode of `task`, cut at the environment's limit or at `max_turns`."""
    started = time.perf_counter()
    observations = [begin(environment, task)]
    told = as_text(observations[0])
    rewards: list[float] = []
    paid: list[Mapping[str, float]] = []
    ends: list[tuple[bool, bool, bool | None, bool]] = []
    while len(rewards) < min(max_turns or environment.max_turns, environment.max_turns):
        result = advance(environment, policy(environment, told))
        observations.append(result.observation)
        rewards.append(result.reward)
        paid.append(result.rewards)
        ends.append((result.is_terminated, result.is_truncated, result.is_success, result.is_valid))
        told = find_range_text((told, result.observation))
        if result.is_over:
            break
    claim = ends[-1][2] if ends else None
    return Episode(
        observations=tuple(observations),
        rewards=tuple(rewards),
        paid=tuple(paid),
        ends=tuple(ends),
        is_success=sum(rewards) > 0 if claim is None else claim,
        seconds=time.perf_counter() - started,
    )


def noop(_environment: Environment, _observation: str) -> Action:
    """Return the action of a policy that says nothing."""
    return Action()


def expert(environment: Environment, _observation: str) -> Action:
    """Return the action of the environment's own expert."""
    return cast(Expert, environment).expert_action()


def foreseen(environment: Environment, most: int = 64) -> list[Action]:
    """Return what the expert does from here on, `most` actions of it at most; the environment is left as it is.

    Raises:
        UsageError: the environment has no expert, or cannot be brought back.
    """
    if isinstance(environment, Scripted):
        return list(environment.script())[:most]
    if not (isinstance(environment, Expert) and isinstance(environment, Snapshot)):
        raise UsageError(
            f"what an expert will do: got {environment_name(environment)}, which lacks an expert or snapshots; "
            "define expert_action, snapshot and restore"
        )
    saved, found = environment.snapshot(), list[Action]()
    while len(found) < min(most, environment.max_turns):
        found.append(environment.expert_action())
        result = advance(environment, found[-1])
        if result.is_over:
            break
    environment.restore(saved)
    return found


def master(environment: Environment, observation: str) -> Action:
    """Return the action of good play: the expert's, but where that is a teacher with a fault."""
    return (
        environment.best_action() if isinstance(environment, PlaysWell) else expert(environment, observation)
    )


def random_policy(seed: int) -> Policy:
    """Return a policy that acts at random, the same way for the same seed."""
    rng = random.Random(seed)
    return lambda environment, observation: random_action(environment, rng, observation)


def random_action(environment: Environment, rng: random.Random, observation: str = "") -> Action:
    """Return a random legal action, else a random valid tool call, else random words of `observation`.

    An integer without bounds is drawn from the range that the integers in `observation` span.
    """
    legal = environment.legal_actions() if isinstance(environment, Legal) else ()
    if legal:
        return Action(text=rng.choice(legal))
    tools = environment.tools()
    if tools:
        spec = rng.choice(tools)
        arguments = _Draw(rng, observation, spec.parameters).value(spec.parameters)
        return Action(tool_calls=(ToolCall(name=spec.name, arguments=cast("dict[str, Any]", arguments)),))
    words = WORD.findall(observation) or ["yes", "no"]
    return Action(text=" ".join(rng.choice(words) for _ in range(rng.randint(1, 3))))


def find_range_text(observations: Sequence[Observation]) -> str:
    """Return the text to draw from: the last that names a range (two integers), else the last there is.

    Example: ``find_range_text(("between 1 and 32", "higher"))`` is ``"between 1 and 32"``.
    """
    for observation in reversed(observations):
        if len(INTEGER.findall(as_text(observation))) > 1:
            return as_text(observation)
    return as_text(observations[-1]) if observations else ""


@dataclass(frozen=True, slots=True)
class _Draw:
    """Draws values that fit a JSON schema."""

    rng: random.Random
    observation: str
    root: Mapping[str, Any]

    def value(self, schema: Mapping[str, Any]) -> Any:
        """Return a value that fits `schema`, as far as it says what it wants."""
        if "$ref" in schema:
            return self.value(self.root["$defs"][schema["$ref"].rpartition("/")[2]])
        if "const" in schema:
            return schema["const"]
        choices: Sequence[Any] | None = schema.get("enum")
        if choices:
            return self.rng.choice(choices)
        variants: Sequence[Mapping[str, Any]] | None = schema.get("anyOf") or schema.get("oneOf")
        if variants:
            return self.value(self.rng.choice(variants))
        makers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "integer": self._integer,
            "number": lambda found: self.rng.uniform(
                float(found.get("minimum", 0)), float(found.get("maximum", 1))
            ),
            "boolean": lambda _: self.rng.random() < 0.5,
            "null": lambda _: None,
            "array": self._array,
            "object": self._object,
        }
        return makers.get(schema.get("type", "string"), self._string)(schema)

    def _integer(self, schema: Mapping[str, Any]) -> int:
        named = [int(text) for text in INTEGER.findall(self.observation)]
        low, high = (min(named), max(named)) if len(named) > 1 else (0, 9)
        low = int(schema.get("minimum", schema.get("exclusiveMinimum", low - 1) + 1))
        high = int(schema.get("maximum", schema.get("exclusiveMaximum", high + 1) - 1))
        return self.rng.randint(low, max(low, high))

    def _string(self, schema: Mapping[str, Any]) -> str:
        text = self.rng.choice(WORD.findall(self.observation) or ["a"])
        return text.ljust(int(schema.get("minLength", 0)), "a")[: int(schema.get("maxLength", len(text) + 1))]

    def _array(self, schema: Mapping[str, Any]) -> list[Any]:
        least = int(schema.get("minItems", 0))
        fixed: Sequence[Mapping[str, Any]] = schema.get("prefixItems", ())
        count = self.rng.randint(least, max(least, int(schema.get("maxItems", least + 2))))
        items: Mapping[str, Any] = schema.get("items") or {}
        return [self.value(part) for part in fixed] or [self.value(items) for _ in range(count)]

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        required = schema.get("required", ())
        fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
        return {
            key: self.value(part)
            for key, part in fields.items()
            if key in required or self.rng.random() < 0.5
        }
