"""Harnesses that put something between themselves and the environment, such as a Python that runs code.

The rollout equips every environment that it makes. The one rule: what an equipped environment is and holds per
episode starts with `reset` and ends with `close`, as in any environment.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from quintain.agents.protocol import Agent
from quintain.environments.protocol import Environment


@runtime_checkable
class Equips(Protocol):
    """A harness whose actions an environment does not understand by itself."""

    def equip(self, environment: Environment) -> Environment:
        """Return an environment that carries out the harness's actions in `environment`."""
        ...


def equipped(agent: Agent, environment: Environment) -> Environment:
    """Return `environment` as `agent` needs it; what a wrapper wraps (its field `agent`) is asked as well."""
    inner: object = agent
    while inner is not None:
        if isinstance(inner, Equips):
            return inner.equip(environment)
        inner = getattr(inner, "agent", None)
    return environment
