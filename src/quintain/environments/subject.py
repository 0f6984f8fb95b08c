"""The environment under examination: fresh instances, its tasks, and how two of them are compared."""

from collections.abc import Callable
from dataclasses import dataclass, field

from quintain.environments.baselines import Episode, random_policy
from quintain.environments.protocol import Environment, advance
from quintain.errors import QuintainError
from quintain.types import Observation, Split, Task

SHORT = 30
"""Turns of the episodes that are compared step by step."""


class Violation(QuintainError):
    """The environment broke its contract."""


class Skipped(QuintainError):
    """The probe does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The environment under examination, and what was measured of it."""

    make: Callable[[], Environment]
    num_episodes: int
    built: list[Environment] = field(default_factory=list[Environment])
    """Instances that are still open."""
    measured: dict[str, float] = field(default_factory=dict[str, float])
    known_tasks: dict[Split, list[Task]] = field(default_factory=dict[Split, list[Task]])

    def build(self) -> Environment:
        """Return a fresh instance, which lives until the end of the probe."""
        self.built.append(self.make())
        return self.built[-1]

    def close(self) -> None:
        """Close the instances that the probe built."""
        while self.built:
            self.built.pop().close()

    def tasks(self, count: int, split: Split = "train") -> list[Task]:
        """Return the first tasks of a split, as one instance names them."""
        known = self.known_tasks.get(split, [])
        if len(known) < count:
            environment = self.build()
            known = [environment.task(split, index) for index in range(count)]
            self.known_tasks[split] = known
        return known[:count]


def carry_on(environment: Environment, seed: int, max_turns: int = SHORT) -> Episode:
    """Play on from the current state, with random actions that depend on the seed alone."""
    policy = random_policy(seed)
    observations: list[Observation] = []
    rewards: list[float] = []
    ends: list[tuple[bool, bool, bool | None, bool]] = []
    while len(rewards) < max_turns:
        result = advance(environment, policy(environment, "1 32"))
        observations.append(result.observation)
        rewards.append(result.reward)
        ends.append((result.is_terminated, result.is_truncated, result.is_success, result.is_valid))
        if result.is_terminated or result.is_truncated:
            break
    return Episode(
        observations=tuple(observations),
        rewards=tuple(rewards),
        ends=tuple(ends),
        is_success=False,
        seconds=0.0,
    )


def require_same(one: Episode, other: Episode, complaint: str) -> None:
    """Raise a `Violation` that shows the first difference of two episodes."""
    for step, pair in enumerate(zip(one.observations, other.observations, strict=False)):
        if pair[0] != pair[1]:
            raise Violation(
                f"{complaint}: observation {step} is {shortened(pair[0])} and {shortened(pair[1])}"
            )
    if one.rewards != other.rewards:
        raise Violation(f"{complaint}: rewards are {shortened(one.rewards)} and {shortened(other.rewards)}")
    if one.ends != other.ends:
        raise Violation(f"{complaint}: they end differently")


def shortened(value: object) -> str:
    """Return `value` in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
