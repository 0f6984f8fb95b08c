"""Which source plays the episodes of an agent: one that lives outside gets a recording endpoint."""

from __future__ import annotations

from quintain.agents.outside import Outside
from quintain.agents.protocol import Agent
from quintain.environments.extras import extra_module
from quintain.rollout.source import Home, Kind


def find_source(agent: Agent, usual: Kind = "lockstep") -> Kind | Home:
    """Return what plays the episodes of `agent`: the `usual` source, unless it lives outside.

    Raises:
        MissingExtra: it lives outside, and there is no package that serves the endpoint.
        UsageError: it, or its grader, is not there.
    """
    if not isinstance(agent, Outside):
        return usual
    for package in ("starlette", "uvicorn", "websockets"):
        extra_module(package, package=package, extra="serve", feature="an agent outside")
    from quintain.serve.source import Outsiders

    return Outsiders(agent)
