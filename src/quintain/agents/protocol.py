"""What an agent (harness) is: history → prompt ids, sampled ids → action, and back for demonstrations.

An `Agent` is stateless and shared; each episode opens a `Session`. The rollout asks the session for the next prompt,
gives it the completion, and carries out the action it reads. A harness may put an environment of its own around the
one it acts in (`Equips`), such as a Python that runs code; what that holds for an episode starts with `reset` and
ends with `close`, as in any environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast, runtime_checkable

from quintain.engines.protocol import Sampling
from quintain.environments.protocol import Environment
from quintain.types import Action, Completion, Observation, Task, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What an agent may know of an episode before it starts."""

    task: Task
    instructions: str
    tools: tuple[ToolSpec, ...] = ()
    legal_actions: tuple[str, ...] = ()
    """Actions that are legal in the first state; empty when the environment does not list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What to sample from next: ids that continue the stream, or open a new one when `starts_segment`."""

    token_ids: tuple[int, ...]
    starts_segment: bool
    sampling: Sampling
    role: str = ""
    """What the completion is if it is not carried out: plan, critique, memory..."""
    shows: str | None = None
    """What the harness itself says in this prompt; it stands for the observation if nothing is done."""


class Session(Protocol):
    """One episode's conversation."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """Append `observation` and return the next turn's prompt (the first always starts a segment)."""
        ...

    def read(self, completion: Completion) -> Action:
        """Record `completion` in the history and return its action; malformed text gives `Action.error`."""
        ...

    def write(self, action: Action) -> tuple[int, ...]:
        """Return the ids the policy should have sampled to take `action`, stop token included."""
        ...


@runtime_checkable
class Deliberates(Protocol):
    """A session that may speak several times before it acts."""

    def more(self) -> Prompt | None:
        """Return the next prompt if what was just read is not to be carried out (yet), else None.

        It is asked once after every `Session.read`. The turn is then recorded as one in which nothing was
        done, and the prompt is sampled from without another observation.
        """
        ...


@runtime_checkable
class Foresees(Protocol):
    """A session in which a demonstrator says more than its next action: what it will do, a plan of its whole way."""

    def foresee(self, environment: Environment) -> Action | None:
        """Return what is to be said now by one who knows what comes next in `environment`; None: the next action."""
        ...


class Agent(Protocol):
    """A harness, shared by all episodes of a run."""

    def open(self, brief: Brief) -> Session:
        """Return the session of a new episode."""
        ...


@runtime_checkable
class Equips(Protocol):
    """A harness whose actions an environment does not understand by itself."""

    def equip(self, environment: Environment) -> Environment:
        """Return an environment that carries out the harness's actions in `environment`."""
        ...


@cache
def equips(kind: type[object]) -> bool:
    """Whether harnesses of `kind` equip environments; asking a class once is quick."""
    return issubclass(kind, Equips)


def equipping(agent: Agent) -> Equips | None:
    """Return what of `agent` equips environments: itself, what it wraps (its field `agent`), or nothing."""
    inner: object = agent
    while inner is not None:
        if equips(type(inner)):
            return cast(Equips, inner)
        inner = getattr(inner, "agent", None)
    return None


def equip(agent: Agent, environment: Environment) -> Environment:
    """Return `environment` as `agent` needs it."""
    found = equipping(agent)
    return environment if found is None else found.equip(environment)
