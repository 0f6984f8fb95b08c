"""Names of harnesses: what ``agent="react"`` or ``agent="window?turns=4+tools?calls=llama"`` builds.

A spec is a harness, and in front of it, each with a ``+``, what it is wrapped in, outermost first; options follow a
question mark and are the fields of its class. ``mine.py:run_agent`` is an agent of the user's own, which lives outside
(`quintain.agents.external_agent`), the same as ``endpoint?run=mine.py:run_agent``. ``agent.toml`` is the agent that
this file configures (`quintain.agents.configured`). An unknown name or option, or a
harness that the environment has nothing for, is an error that names the nearest one, before anything is sampled.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from quintain.config.spec import fields_of, read_options, refuse_twice, split_spec
from quintain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from quintain.agents.protocol import Agent
    from quintain.engines.protocol import Capability
    from quintain.environments.protocol import Environment
    from quintain.text.chat import Chat

AUTO = "auto"
"""JSON tools where there are tools, else a choice where legal actions are listed, else plain text."""
FILE = ".toml"
"""What the name of a file ends with that configures an agent."""
OUTSIDE = "endpoint"
"""An agent that lives outside and talks to the recording endpoint."""
HARNESSES: dict[str, str] = {
    "advised": "quintain.agents.adviser:Advised",
    "choice": "quintain.agents.harness:Choice",
    "code": "quintain.agents.code:CodeAct",
    "constrained": "quintain.agents.constrained:Constrained",
    "drafted": "quintain.search.drafted:Drafted",
    "endpoint": "quintain.agents.external_agent:Outside",
    "experts": "quintain.agents.experts:Experts",
    "grounded": "quintain.agents.grounded:Grounded",
    "react": "quintain.agents.harness:ReAct",
    "roles": "quintain.agents.roles:Roles",
    "routed": "quintain.agents.routed:Routed",
    "scored": "quintain.agents.scored:Scored",
    "tags": "quintain.agents.tagged:Tagged",
    "team": "quintain.agents.team:Together",
    "text": "quintain.agents.harness:PlainText",
    "tools": "quintain.agents.harness:JsonTools",
    "workforce": "quintain.agents.workforce:Workforce",
}
"""Harnesses, by name."""
WRAPPERS: dict[str, str] = {
    "again": "quintain.agents.again:Again",
    "backoff": "quintain.agents.backoff:Backoff",
    "backtracked": "quintain.search.backtracking:Backtracked",
    "branching": "quintain.agents.plan_tree:Branching",
    "budget": "quintain.agents.budget:Budget",
    "capped": "quintain.agents.capped:Capped",
    "cased": "quintain.agents.cased:Cased",
    "chunks": "quintain.agents.reading:Chunks",
    "configured": "quintain.agents.configured:Configured",
    "consulting": "quintain.agents.consulting:Consulting",
    "evolved": "quintain.search.evolve:Evolved",
    "costed": "quintain.agents.costed:Costed",
    "experienced": "quintain.agents.experienced:Experienced",
    "foresight": "quintain.agents.foresight:Foresight",
    "guided": "quintain.search.guided:Guided",
    "infonav": "quintain.agents.infonav:InfoNav",
    "interface": "quintain.agents.interface:Interfaced",
    "labelled": "quintain.agents.labelled:Labelled",
    "memory": "quintain.agents.context:Memory",
    "navigated": "quintain.agents.navigated:Navigated",
    "ordered": "quintain.agents.ordered:Ordered",
    "pivotal": "quintain.agents.shaping:Pivotal",
    "plan": "quintain.agents.plan:PlanAndAct",
    "poact": "quintain.agents.poact:PoAct",
    "ramp": "quintain.agents.ramp:Ramp",
    "rci": "quintain.agents.rci:Critique",
    "refined": "quintain.agents.refined:Refined",
    "rollback": "quintain.agents.rollback:Rollback",
    "scheduled": "quintain.search.thoughts:Scheduled",
    "searched": "quintain.search.harness:Searched",
    "simplified": "quintain.agents.shaping:Simplified",
    "summary": "quintain.agents.context:Summary",
    "voted": "quintain.agents.voted:Voted",
    "window": "quintain.agents.context:Window",
    "workflow": "quintain.agents.workflow:Follow",
}
"""What a harness can be wrapped in, by name."""
REPEATERS = frozenset({"pivotal", "window"})
"""Wrappers that show an inner session the last turns again: it must not depend on those before."""
REMEMBERERS = frozenset(
    {
        "again",
        "backoff",
        "branching",
        "chunks",
        "consulting",
        "infonav",
        "interface",
        "memory",
        "plan",
        "poact",
        "refined",
        "rollback",
        "summary",
        "workflow",
    }
)
"""Wrappers that depend on every turn of the episode."""
PRESETS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "glam": ("scored", {"normalization": "sum", "list_actions": True}),
    "twosome": ("scored", {"normalization": "word"}),
}
"""Names that stand for a harness with options."""
NEEDS: dict[str, tuple[str, str]] = {
    "choice": ("legal_actions", "text"),
    "constrained": ("tools", "react"),
    "scored": ("legal_actions", "text"),
    "tags": ("tools", "text"),
    "tools": ("tools", "react"),
}
"""harness → (what an environment must have for it, the harness to take where it has not)"""
GIVEN = ("agent", "chat", "temperature")
"""Fields that are filled by other things than options."""


@runtime_checkable
class Requires(Protocol):
    """A wrapper that needs something of the environment."""

    def require(self, environment: Environment) -> None:
        """Raise a `UsageError` where `environment` does not have it."""
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """One part of a spec: ``Layer("tools", {"calls": "llama"})``."""

    name: str
    options: Mapping[str, str]


def names() -> tuple[str, ...]:
    """Return every name that a spec may hold, sorted."""
    return tuple(sorted({AUTO, *HARNESSES, *WRAPPERS, *PRESETS}))


def build(
    spec: str, chat: Chat, environment: Environment, *, temperature: float = 1.0, max_tokens: int = 128
) -> Agent:
    """Return the agent that `spec` names for `environment`.

    `max_tokens` bounds a completion unless the spec says otherwise.

    Raises:
        UsageError: see `check`; or the environment has no tools or legal actions, which the harness needs.
    """
    *wrappers, innermost = check(spec)
    agent = _harness(spec, innermost, chat, environment, temperature, max_tokens)
    for layer in reversed(wrappers):
        kind = _class(WRAPPERS[layer.name])
        given: dict[str, Any] = {"agent": agent, "chat": chat, "temperature": temperature}
        fields = {field.name for field in dataclasses.fields(kind)}
        options = _values(spec, layer, kind)
        agent = cast("Agent", kind(**{key: given[key] for key in given if key in fields}, **options))
        if isinstance(agent, Requires):
            agent.require(environment)
    return agent


def check(spec: str) -> tuple[Layer, ...]:
    """Return the parts of `spec`, the harness last; ``auto`` is added to wrappers that wrap nothing.

    Raises:
        UsageError: an unknown name or option, a value that does not fit, or parts in an impossible order.
    """
    if spec.endswith(FILE) and "?" not in spec:  # team?of=team.toml is a harness with a file of its own
        from quintain.agents.configured import load_configuration

        spec = f"configured?file={spec}+{load_configuration(Path(spec)).agent}"
    layers = [_outside_layer(spec)] if is_outside(spec) else [_layer(spec, part) for part in spec.split("+")]
    if len(layers) > 1 and layers[-1].name == OUTSIDE:
        raise UsageError(
            f"agent: got {spec!r}, in which {layers[0].name} wraps an agent that keeps its own history; leave it out"
        )
    for layer in layers[:-1]:
        if layer.name not in WRAPPERS:
            raise UsageError(
                f"agent: got {spec!r}, in which {layer.name} wraps nothing; put the harness last, after "
                f"{', '.join(sorted(WRAPPERS)) or 'nothing'}"
            )
    outer = next((n for n, layer in enumerate(layers) if layer.name in REPEATERS), len(layers))
    inner = next((layer.name for layer in layers[outer:] if layer.name in REMEMBERERS), None)
    if inner is not None:
        repeater = layers[outer].name
        raise UsageError(
            f"agent: got {spec!r}, in which {repeater} forgets what {inner} stands on; write "
            f"{inner}+{repeater}+..."
        )
    if layers[-1].name in WRAPPERS:
        layers.append(Layer(AUTO, {}))
    for layer in layers:
        if layer.name != AUTO:
            _values(spec, layer, _class(_place(layer.name)))
        elif layer.options:
            raise UsageError(f"agent: got {spec!r}; {AUTO} has no options, name the harness instead")
    return tuple(layers)


def is_outside(spec: str) -> bool:
    """Whether `spec` names an agent that lives outside and talks to the recording endpoint."""
    name, _, _ = spec.partition("?")
    return ":" in name or name.strip() == OUTSIDE


def engine_needs(spec: str) -> frozenset[Capability]:
    """Return what an engine must be able to do for the agent that `spec` names.

    Raises:
        UsageError: see `check`.
    """
    layers = [(layer, _class(_place(layer.name))) for layer in check(spec) if layer.name != AUTO]
    needed = frozenset[Any]().union(*(getattr(kind, "needs", ()) for _, kind in layers))
    masked = frozenset[Any](["masked"])
    return needed | masked if any(_settings(spec, *each).get("masked") for each in layers) else needed


def _settings(spec: str, layer: Layer, kind: type) -> dict[str, Any]:
    """Return what the preset and the options of `layer` set of `kind`."""
    return {**PRESETS.get(layer.name, ("", {}))[1], **_values(spec, layer, kind)}


def _harness(
    spec: str, layer: Layer, chat: Chat, environment: Environment, temperature: float, max_tokens: int
) -> Agent:
    """Return the harness that `layer` names."""
    if layer.name == AUTO:
        from quintain.agents.harness import for_environment

        return for_environment(chat, environment, temperature=temperature, max_tokens=max_tokens)
    name = layer.name
    needed, instead = NEEDS.get(_base(name), ("", ""))
    if needed and not _has(environment, needed):
        who = type(environment).__name__
        raise UsageError(f"agent {name!r} needs {needed}: got {who}, which has none; take {instead}, or auto")
    kind = _class(_place(name))
    values = {"max_tokens": max_tokens, **_settings(spec, layer, kind)}
    if name == OUTSIDE:
        from quintain.agents.harness import for_environment

        values["agent"] = for_environment(chat, environment, temperature=temperature, max_tokens=max_tokens)
    return cast("Agent", kind(chat=chat, temperature=temperature, **values))


def _outside_layer(spec: str) -> Layer:
    """Return the part that ``mine.py:run_agent?grade=grade`` or ``endpoint?command=…`` is; options may hold any sign.

    Raises:
        UsageError: it cannot be read.
    """
    name, _, query = spec.partition("?")
    layer = _layer(spec, f"{OUTSIDE}?{query}" if query else OUTSIDE)
    if name.strip() == OUTSIDE:
        return layer
    return Layer(OUTSIDE, {"run": name.strip(), **layer.options})


def _has(environment: Environment, what: str) -> bool:
    """Whether `environment` has tools, or lists its legal actions; of a mixture, whether every part does."""
    from quintain.environments.mixture import MixedEnvironment
    from quintain.environments.protocol import Legal

    if isinstance(environment, MixedEnvironment):
        return all(_has(part, what) for part in environment.parts().values())
    return bool(environment.tools()) if what == "tools" else isinstance(environment, Legal)


def _layer(spec: str, part: str) -> Layer:
    """Read one part of `spec`."""
    name, pairs = split_spec(part, f"the agent {spec!r}")
    if name not in names():
        raise UsageError(f"agent: got {spec!r}, in which {name!r} is unknown; {suggestion(name, names())}")
    return Layer(name, refuse_twice(pairs, f"{name} in the agent {spec!r}"))


def _base(name: str) -> str:
    """Return the harness that `name` is, or is a preset of."""
    return PRESETS[name][0] if name in PRESETS else name


def _place(name: str) -> str:
    """Return where the class of `name` is."""
    return WRAPPERS[name] if name in WRAPPERS else HARNESSES[_base(name)]


def _class(place: str) -> type[Any]:
    """Import the class at ``module:Class``."""
    module, _, name = place.partition(":")
    return cast("type[Any]", getattr(importlib.import_module(module), name))


def _values(spec: str, layer: Layer, kind: type[Any]) -> dict[str, Any]:
    """Return the options of `layer` as the fields of `kind` want them."""
    return read_options(
        [*layer.options.items()], fields_of(kind, GIVEN), f"{layer.name} in the agent {spec!r}"
    )
