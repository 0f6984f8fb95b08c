"""What an agent is made of, by the five modules of LLM-Agent-UMF (arXiv 2409.11393), read off its name and built back.

Planning, memory, profile, action and security. An agent with one of the first three is active; one that only acts,
under guard or not, is passive. `describe` reads a name of the catalogue (``plan+memory+tools``) and the name of the
environment, where the guard stands; `AgentSpec.name` and `AgentSpec.place` are what it was read from, so that it can be
built back. What a layer fills is a table, `FILLS`.

Differences to the paper: a model's own weights and habits are in no module. A conversation that goes on is a memory of
short scope, which the paper leaves to the model; a window of N turns is none. Safeguards of prompts and of answers are
not modules here, so security is what stands before tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from quintain.agents.catalog import AUTO, Layer, check
from quintain.environments.guarding import guard_spec, split_guard
from quintain.types.findings import Finding

Module = Literal["planning", "memory", "profile", "action", "security"]
MODULE_NAMES: tuple[Module, ...] = get_args(Module)
ACTIVE: frozenset[Module] = frozenset({"planning", "memory", "profile"})
"""Modules of which an active agent has one at least."""
CONVERSATION = "conversation"
"""What remembers where nothing rewrites history."""
FORGETFUL: Mapping[str, str] = {"window": "", "plan": "replan_every"}
"""Layers behind which nothing older than a few turns is known, and the option with which they forget, if any."""
FILLS: Mapping[str, Module] = {
    "advised": "planning", "backoff": "planning", "backtracked": "planning", "branching": "planning",
    "costed": "planning", "drafted": "planning",
    "evolved": "planning", "foresight": "planning", "guided": "planning", "infonav": "planning",
    "navigated": "planning", "plan": "planning", "poact": "planning", "rci": "planning", "rollback": "planning",
    "routed": "planning", "scheduled": "planning", "searched": "planning", "voted": "planning",
    "workflow": "planning", "workforce": "planning",
    "cased": "memory", "experienced": "memory", "memory": "memory", "pivotal": "memory", "summary": "memory",
    "chunks": "memory", "consulting": "memory",
    "configured": "profile", "experts": "profile", "labelled": "profile", "roles": "profile", "team": "profile",
    AUTO: "action", "choice": "action", "code": "action", "constrained": "action", "endpoint": "action",
    "glam": "action", "grounded": "action", "react": "action", "scored": "action", "tags": "action", "text": "action",
    "tools": "action", "twosome": "action",
    "again": "action", "budget": "action", "capped": "action", "ordered": "action", "ramp": "action",
    "interface": "action", "refined": "action", "simplified": "action",
}  # fmt: skip
"""Layer → the module that it belongs to; the innermost one acts, whatever else it is."""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What fills each module: ``describe("plan+memory+tools", "desk")``; what fills none is empty."""

    planning: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    profile: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    """the policies before its tools"""
    order: tuple[str, ...] = ()
    """its layers with their options, outermost first"""
    environment: str = ""
    """without the guard"""

    @property
    def is_active(self) -> bool:
        """Whether it plans, remembers, or has a profile."""
        return any(getattr(self, name) for name in MODULE_NAMES if name in ACTIVE)

    @property
    def name(self) -> str:
        """The name to build it from."""
        return "+".join(self.order)

    @property
    def place(self) -> str:
        """The name of the environment, under its guard."""
        return guard_spec(self.environment, self.security[0]) if self.security else self.environment

    def list_modules(self) -> frozenset[Module]:
        """Return the modules that are not empty."""
        return frozenset(name for name in MODULE_NAMES if getattr(self, name))


def describe(agent: str, environment: str = "") -> AgentSpec:
    """Return what the agent that the catalogue calls `agent` is made of, in `environment`.

    Raises:
        UsageError: there is no such agent, or no such guard.
    """
    layers = check(agent)
    inner, policy = split_guard(environment)
    found: dict[Module, list[str]] = {name: [] for name in MODULE_NAMES}
    for layer in layers:
        if layer.name in FILLS:
            found[FILLS[layer.name]].append(write_layer(layer))
    if FILLS[layers[-1].name] != "action":
        found["action"].append(write_layer(layers[-1]))
    if not found["memory"] and not any(map(forgets, layers)):
        found["memory"].append(CONVERSATION)
    if policy:
        found["security"].append(policy)
    return AgentSpec(
        **{name: tuple(values) for name, values in found.items()},
        order=tuple(map(write_layer, layers)),
        environment=inner,
    )


def forgets(layer: Layer) -> bool:
    """Whether `layer` begins the conversation anew: a window does, and a planner with every new plan."""
    option = FORGETFUL.get(layer.name)
    return option is not None and (not option or layer.options.get(option, "0") != "0")


def write_layer(layer: Layer) -> str:
    """Return `layer` as a part of an agent's name: ``window?turns=2``."""
    options = "&".join(f"{name}={value}" for name, value in layer.options.items())
    return f"{layer.name}?{options}" if options else layer.name


def lint_spec(spec: AgentSpec, *, has_tools: bool = True) -> Finding:
    """Return what is to be said of the modules of `spec`: a note where it has tools and nothing stands before them."""
    kind = "active" if spec.is_active else "passive"
    parts = [f"{name} {', '.join(getattr(spec, name))}" for name in MODULE_NAMES if getattr(spec, name)]
    told = f"{kind}: {'; '.join(parts)}"
    if spec.security or not has_tools:
        return Finding("modules", "pass", told)
    return Finding("modules", "note", f"{told}; security is empty: give --guard POLICY.json (docs/guards.md)")
