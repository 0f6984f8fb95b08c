"""Every wrapper in the catalogue keeps the contract of environments, and loses no capability that it does not name."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import product
from typing import Any, cast

import pytest

from quintain.agents.catalog import HARNESSES, WRAPPERS, build
from quintain.agents.protocol import Equips, equip
from quintain.environments import noisy, protocol
from quintain.environments.catalog import find
from quintain.environments.mixture import MixedEnvironment
from quintain.environments.probes import PROBES, NotApplicableError, NotedError, Subject
from quintain.environments.protocol import (
    Environment,
    Legal,
    RetrievesTools,
    Seats,
    Simultaneous,
    SimultaneousSeats,
    TakesObjects,
    advance,
    advance_all,
    begin,
)
from quintain.environments.wrapped import CAPABILITIES, Wrapped
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Task

USUAL = ("plan", "web", "twocards", "desk")
FITTING: dict[str, tuple[str, ...]] = {
    "advised": ("craft",),
    "backtracked?retries=0": ("plan", "web", "keydoor"),
    "capped?calls=99": USUAL,
    "capped?calls=99+code?seconds=30": ("desk",),
    "chunks": ("stream",),
    "code?seconds=30": USUAL,
    "drafted?steps=2": ("fit",),
    "evolved?size=1": ("plan", "web", "keydoor"),
    "experts": ("collab", "twocards"),
    "grounded": ("screen?interface=text",),
    "guided?size=1": ("plan", "web", "keydoor"),
    "plan?actor=scripted": ("keydoor", "house"),
    "poact?functions=4+code?seconds=30": ("desk",),
    "rollback": ("plan", "web", "keydoor"),
    "routed": ("house", "keydoor"),
    "searched?size=1&steps=200": ("plan", "web", "keydoor"),
    "team?of=debate": ("craft", "keydoor"),
    "workforce": ("craft",),
}
"""agent whose harness equips an environment → environments that it fits"""
MIXTURES = (
    "mix:plan,web,desk",
    "mix:plan,house,web",
    "mix:web,twocards",
    "session:hopqa?tasks=3&repeats=2&advice=0.3",
    "session:keydoor?tasks=2&repeats=1",
)
CASES = [pair for agent, worlds in (*FITTING.items(), ("", MIXTURES)) for pair in product((agent,), worlds)]
UNNEEDED = ("tasks", "speed", "variety")
"""Probes of what a wrapper hands on, and measurements."""


def capabilities(environment: Environment) -> frozenset[type]:
    return frozenset(kind for kind in CAPABILITIES if isinstance(environment, kind))


def wrap(chat: Chat, agent: str, world: str) -> Callable[[], Environment]:
    recipe = find(world)
    return lambda: equip(build(agent, chat, recipe()), recipe()) if agent else recipe()


def test_every_wrapper_of_the_catalogue_is_examined() -> None:
    found = {
        name
        for name, place in {**HARNESSES, **WRAPPERS}.items()
        if issubclass(
            getattr(importlib.import_module(place.partition(":")[0]), place.partition(":")[2]), Equips
        )
    }
    assert found == {agent.partition("?")[0] for agent in FITTING}, (
        "name environments that the new wrapper fits"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "world"), CASES)
@pytest.mark.parametrize("probe", [name for name in PROBES if name not in UNNEEDED])
def test_a_wrapped_environment_keeps_the_contract(
    small_chat: Chat, agent: str, world: str, probe: str
) -> None:
    with closing(Subject(make=wrap(small_chat, agent, world), num_episodes=4)) as subject:
        try:
            PROBES[probe](subject)
        except (NotApplicableError, NotedError) as skipped:
            print(skipped)


@pytest.mark.parametrize(("agent", "world"), CASES)
def test_a_wrapper_has_what_is_inside_but_for_what_it_names(small_chat: Chat, agent: str, world: str) -> None:
    with closing(wrap(small_chat, agent, world)()) as wrapped:
        assert isinstance(wrapped, Wrapped)
        parts = list(wrapped.parts().values()) if isinstance(wrapped, MixedEnvironment) else [wrapped.inner]
        inside = frozenset[type].intersection(*map(capabilities, parts))
        assert inside - capabilities(wrapped) <= wrapped.drops
        assert capabilities(wrapped) - inside <= wrapped.adds
        assert type(wrapped).tags == frozenset[str]().union(*(type(part).tags for part in parts))


def test_every_capability_that_is_defined_is_known_to_wrappers() -> None:
    defined = {
        kind
        for module in (protocol, noisy)
        for kind in vars(module).values()
        if isinstance(kind, type) and getattr(kind, "_is_runtime_protocol", False)
    }
    assert defined == CAPABILITIES, "add it to one of the sets of environments/wrapped.py"


class Plain(Wrapped):
    """Nothing in front."""


class Watching(Wrapped):
    """It looks at what is done."""

    def step(self, action: Action) -> StepResult:
        assert action.text != "refused"
        return super().step(action)

    def legal_actions(self) -> tuple[str, ...]:
        return tuple(action for action in cast(Legal, self.inner).legal_actions() if action != "refused")


class AtOnce(Simultaneous):
    """Both say something, at once; code may hand over a number."""

    max_turns = 2

    def reset(self, task: Task) -> str:
        self.said = ""
        return "Speak."

    def seats(self) -> tuple[str, ...]:
        return "a", "b"

    def observe(self, seat: str) -> str:
        return f"{seat} heard {self.said}"

    def step_all(self, actions: Mapping[str, Action]) -> StepResult:
        self.said = " ".join(action.text for action in actions.values())
        return StepResult(observation="", rewards=dict.fromkeys(actions, 0.5))

    def wanted(self) -> tuple[str, ...]:
        return ("x",)

    def take(self, objects: Mapping[str, Any]) -> StepResult:
        return StepResult(observation=f"x is {objects['x']}")


def test_nothing_that_is_done_passes_a_wrapper_by_that_looks_at_actions() -> None:
    plain, watching = Plain(AtOnce()), Watching(AtOnce())
    assert isinstance(plain, SimultaneousSeats) and isinstance(plain, TakesObjects)
    assert not isinstance(watching, SimultaneousSeats) and not isinstance(watching, TakesObjects)
    assert isinstance(watching, Seats) and not isinstance(watching, Legal), "inside nothing is listed"
    task = watching.task("train", 0)
    begin(watching, task)
    assert watching.seat() == "a" and advance(watching, Action(text="hi")).observation == "b heard "
    assert advance(watching, Action(text="ho")).observation == "a heard hi ho"
    begin(plain, task)
    assert advance_all(plain, {seat: Action(text=seat) for seat in plain.acting()}).reward == 0.5
    assert (plain.observe("a"), plain.take({"x": 1}).observation) == ("a heard a b", "x is 1")


def test_limits_and_what_an_environment_is_for_are_those_inside() -> None:
    inner = AtOnce()
    inner.evaluation_only, inner.later_words, inner.parallel = True, ("later",), 3
    wrapped = Plain(inner)
    assert (wrapped.evaluation_only, wrapped.later_words, wrapped.parallel) == (True, ("later",), 3)
    inner.max_turns = 7
    begin(wrapped, wrapped.task("train", 0))
    assert wrapped.max_turns == 7 and wrapped.name == "atonce"


def test_a_retriever_is_exchanged_inside() -> None:
    inner = find("shelf")()
    wrapped = Plain(inner)
    assert isinstance(inner, RetrievesTools) and isinstance(wrapped, RetrievesTools)
    wrapped.ranker = None
    assert inner.ranker is None and wrapped.ranker is None
