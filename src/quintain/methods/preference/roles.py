"""The two roles of methods whose planner learns while who acts on its plans rests."""

from __future__ import annotations

from collections.abc import Mapping

from quintain.agents.catalog import check as parts_of
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN

ACTOR, PLANNER = "agent", "agent/plan"


def check_roles(agent: str, seats: Mapping[str, str]) -> None:
    """Raise a `ConfigError` where nobody plans, or where planner and actor are the same policy."""
    if not any(
        part.name == "plan" and part.options.get("actor", "policy") == "policy" for part in parts_of(agent)
    ):
        raise ConfigError(
            f"agent: got {agent!r}, in which nobody writes plans for a policy; give plan, or plan+react"
        )
    actor, planner = seats.get(ACTOR, MAIN), seats.get(PLANNER, seats.get(ACTOR, MAIN))
    if planner != MAIN or actor == MAIN:
        raise ConfigError(
            f"seats: got {planner!r} for plans and {actor!r} for actions; let {MAIN!r} write plans ({PLANNER}) and "
            f"another policy act ({ACTOR}), such as 'reference'"
        )
