"""An environment around another: it can do all that the one inside can, but for what it says that it drops.

Whether a class of `Wrapped` has a capability (`CAPABILITIES`) is decided when it is put around an environment: it has
those of the environment, without its `drops`, and always those that it `adds`. What the class does not write itself is
asked of the environment inside; what it writes for a capability that is not there cannot be seen (`isinstance` says
no). Actions that the environment names come out as `write_action` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cache
from typing import Any, ClassVar, Protocol, Self, cast

from quintain.environments.noisy import Fallible, Idle, Methodical
from quintain.environments.protocol import (
    Advises,
    AsksGrader,
    Configurable,
    Corpus,
    CountsTasks,
    Described,
    Environment,
    Expert,
    FindsWay,
    GivesObjects,
    Hindsight,
    Killable,
    Legal,
    PlaysWell,
    PointsAt,
    Pooled,
    Privileged,
    Progressing,
    Proposes,
    RetrievesTools,
    Reversible,
    RunsSolutions,
    Scripted,
    Seats,
    SimultaneousSeats,
    Snapshot,
    StateKey,
    TakesNotes,
    TakesObjects,
    Thinks,
    advance,
    begin,
    environment_name,
)
from quintain.types import Action, Observation, Split, StepResult, Task, ToolSpec

STATES: frozenset[type] = frozenset(
    {Snapshot, StateKey, Progressing, Privileged, Hindsight, Proposes, Configurable, Reversible, TakesNotes}
)
"""Capabilities that speak of states and tasks: they hold whoever acts, and however."""
ACTIONS: frozenset[type] = frozenset(
    {
        Advises, Described, Expert, Fallible, FindsWay, GivesObjects, Idle, Legal, Methodical, PlaysWell, PointsAt,
        RetrievesTools, RunsSolutions, Scripted, Seats, SimultaneousSeats, TakesObjects, Thinks,
    }
)  # fmt: skip
"""Capabilities that speak of actions and of who takes them: dropped where other actions are taken, by others."""
CAPABILITIES = STATES | ACTIONS | {AsksGrader, Corpus, CountsTasks, Killable, Pooled}
"""All that an environment may be capable of."""
DOORS: Mapping[type, str] = {SimultaneousSeats: "step_all", TakesObjects: "take"}
"""Capabilities by which something is done beside `step`: a class that looks at actions in `step` has to do so there."""


class Wrapped(Environment):
    """`inner` with something in front of it: it can do what `inner` can, but for what the class drops.

    A class that writes `step` and not `step_all` or `take` has no `SimultaneousSeats` and `TakesObjects`: nothing
    that is done may pass it by. Seats that choose at once are then asked one after another.
    """

    drops: ClassVar[frozenset[type]] = frozenset()
    """Capabilities of the environment that do not hold outside."""
    adds: ClassVar[frozenset[type]] = frozenset()
    """Capabilities that the class has by itself, whatever it is put around."""
    own: ClassVar[tuple[str, ...]] = ()
    """Its fields that belong to the state of an episode: plain values, or lists and dictionaries of such."""

    def __init__(self, inner: Environment) -> None:
        """Wrap `inner`, and have the capabilities that there are around it."""
        able = frozenset(kind for kind in CAPABILITIES if isinstance(inner, kind))
        self.__class__ = cast("type[Self]", kind_with(type(self), able, type(inner).tags))
        self._inner = inner
        self.name, self.return_range = environment_name(inner), inner.return_range
        self.evaluation_only, self.later_words = inner.evaluation_only, inner.later_words
        self.parallel, self.max_turns = inner.parallel, self.count_turns()

    @property
    def inner(self) -> Environment:
        """The environment inside."""
        return self._inner

    def count_turns(self) -> int:
        """Return the turns of an episode, by those that the environment has now."""
        return self.inner.max_turns

    def begin_inner(self, task: Task) -> Observation:
        """Begin the episode inside, whose limit of turns may be the task's."""
        observation = begin(self.inner, task)
        self.max_turns = self.count_turns()
        return observation

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside."""
        return self.begin_inner(task)

    def step(self, action: Action) -> StepResult:
        """Carry out `action` inside."""
        return advance(self.inner, action)

    def close(self) -> None:
        """Close the environment."""
        self.inner.close()

    def instructions(self) -> str:
        """Return the instructions of the environment."""
        return self.inner.instructions()

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the environment."""
        return self.inner.tools()

    def task(self, split: Split, index: int) -> Task:
        """Return the task of the environment."""
        return self.inner.task(split, index)

    def write_action(self, action: Action) -> Action:
        """Return `action`, which the environment names, as it is taken here."""
        return action

    def snapshot(self) -> tuple[Any, Mapping[str, Any]]:
        """Return the state of the environment, and its own."""
        own = {name: copy(getattr(self, name)) for name in self.own}
        return cast(Snapshot, self.inner).snapshot(), own

    def restore(self, state: tuple[Any, Mapping[str, Any]]) -> None:
        """Continue from a snapshot."""
        inner, own = state
        for name, value in own.items():
            setattr(self, name, copy(value))
        cast(Snapshot, self.inner).restore(inner)
        self.max_turns = self.count_turns()


@cache
def kind_with(cls: type[Wrapped], able: frozenset[type], tags: frozenset[str]) -> type[Wrapped]:
    """Return `cls` as it is around an environment with the capabilities `able` and these `tags`."""
    passed = frozenset[type]()
    if cls.step is not Wrapped.step:
        passed = frozenset(kind for kind, door in DOORS.items() if not hasattr(cls, door))
    kept = {name for kind in (able - cls.drops - passed) | cls.adds for name in members_of(kind)}
    missing = {name for kind in CAPABILITIES for name in members_of(kind)} - kept
    fields: dict[str, Any] = {name: _pass_on(name) for name in sorted(kept) if not hasattr(cls, name)}
    # A method that is None is none: `isinstance` with the protocol says no.
    fields |= {name: None for name in missing if hasattr(cls, name)}
    about = {
        "tags": tags,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    return cast("type[Wrapped]", type(cls.__name__, (cls,), {**about, **fields}))


@cache
def members_of(capability: type) -> frozenset[str]:
    """Return the names of what an environment has that is capable of it."""
    kinds = [kind for kind in capability.__mro__ if Protocol in kind.__bases__]
    names = {name for kind in kinds for name in (*vars(kind), *kind.__annotations__)}
    return frozenset(name for name in names if not name.startswith("_"))


def _pass_on(name: str) -> Callable[..., Any] | property:
    """Return the member `name` of an environment around another: that of the one inside."""
    if name == "ranker":

        def put(self: Wrapped, ranker: object) -> None:
            cast(Any, self.inner).ranker = ranker

        return property(lambda self: self.inner.ranker, put)

    def call(self: Wrapped, *arguments: Any, **options: Any) -> Any:
        found = getattr(self.inner, name)(*arguments, **options)
        if isinstance(found, Action):
            return self.write_action(found)
        if name == "script":
            return [self.write_action(action) for action in found]
        return found

    call.__name__ = name
    return call
