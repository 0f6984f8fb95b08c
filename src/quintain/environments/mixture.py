"""Several environments as one: ``mix:guess,keydoor@2,calc`` plays each task in the environment that it names.

`Task.environment` is the name under which statistics by task are kept. Environments get tasks in proportion to their
weights (1 unless ``@`` says otherwise), spread evenly, and are built when a task first needs them. Instructions,
tools, limits and rewards of an episode are those of its environment, unchanged. A mixture is capable of what all its
environments are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import ClassVar, Self, cast

from quintain.config.spec import read_numbers, split_list
from quintain.data.spread import Spread
from quintain.environments.baselines import random_action
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import (
    Configurable,
    Corpus,
    CountsTasks,
    Environment,
    Killable,
    Legal,
    Pooled,
    RetrievesTools,
    Seats,
    StateKey,
    environment_name,
)
from quintain.environments.specs import MIXTURE, find_single
from quintain.environments.tools import find_clash
from quintain.environments.wrapped import CAPABILITIES, Wrapped, kind_with
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import ALONE, Action, Observation, Split, Task, ToolSpec

Around = Callable[[Environment], Environment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An environment of a mixture: ``Part(name="keydoor", spec="keydoor?rooms=3", weight=2.0)``."""

    name: str
    """its spec without options, or with them where another part is called the same"""
    spec: str
    weight: float


def parts_of(text: str) -> tuple[Part, ...]:
    """Return the parts in `text`, such as ``guess,keydoor?rooms=3@2``; options may hold no comma.

    Raises:
        UsageError: there is none, one occurs twice, or a weight is no positive number.
    """
    whose, example = f"the environment {MIXTURE + text!r}", f"{MIXTURE}guess@2,keydoor"
    weights = read_numbers(split_list(text, whose, example, sign="@", usual="1"), whose, example)
    if not weights or not all(weights.values()):
        raise UsageError(f"{whose}: got no environment, or one without a weight; write {example}")
    short = [spec.partition("?")[0] for spec in weights]
    return tuple(
        Part(name=name if short.count(name) == 1 else spec, spec=spec, weight=weight)
        for name, (spec, weight) in zip(short, weights.items(), strict=True)
    )


class MixedEnvironment(Wrapped):
    """Several environments; a task belongs to one of them."""

    drops: ClassVar[frozenset[type]] = frozenset({Configurable, Corpus, CountsTasks, RetrievesTools})
    """What is asked of an environment before there is a task: documents have no numbers across several."""
    adds: ClassVar[frozenset[type]] = frozenset({Fallible, Legal, Pooled, Seats})
    own: ClassVar[tuple[str, ...]] = ("_now",)

    def __new__(cls, worlds: str, around: Around | None = None) -> Self:
        """Return a mixture that is capable of what all its environments are."""
        found = _describe(worlds)
        return object.__new__(cast("type[Self]", kind_with(cls, found.shared, found.tags)))

    def __init__(self, worlds: str, around: Around | None = None) -> None:
        """Mix `worlds`, such as ``guess,keydoor@2``; `around` puts something around each, which loses nothing of it.

        Raises:
            UsageError: see `parts_of`, or an environment does not exist.
        """
        self.name = f"{MIXTURE}{worlds}"
        self._parts = {part.name: part for part in parts_of(worlds)}
        self._spread = Spread([part.weight for part in self._parts.values()])
        self._built: dict[str, Environment] = {}
        self._pooled: dict[str, Pooled] = {}
        self._now = ""
        self._around = around
        found = _describe(worlds)
        self.max_turns, self.return_range = found.max_turns, found.return_range
        self.evaluation_only, self.later_words = found.evaluation_only, found.later_words
        self.parallel = found.parallel

    @property
    def inner(self) -> Environment:
        """The environment of the task."""
        if not self._now:
            raise EnvironmentFault(f"{self.name}: got a question before a task; call reset first")
        return self._part(self._now)

    def parts(self) -> Mapping[str, Environment]:
        """Return every environment by name, built."""
        return {name: self._part(name) for name in self._parts}

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`: one of the environment whose turn it is."""
        which, place = self._spread.deal(index)
        name = list(self._parts)[which]
        task = self._part(name).task(split, place)
        own = environment_name(self._part(name))
        return replace(task, environment=name, id=task.id if own == name else f"{name}:{task.id}")

    def reset(self, task: Task) -> Observation:
        """Begin `task` in its environment."""
        name = task.environment
        if name not in self._parts:
            raise EnvironmentFault(
                f"task {task.id} of {self.name}: got the environment {name!r}; give one of {', '.join(self._parts)}"
            )
        self._now = name
        own = replace(task, environment=environment_name(self.inner), id=task.id.removeprefix(f"{name}:"))
        return self.begin_inner(own)

    def instructions(self) -> str:
        """Return the instructions of the task's environment; before there is a task, those of all."""
        return "\n".join(dict.fromkeys(part.instructions() for part in self._ask_all()))

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the task's environment; before there is a task, those of all, by name."""
        return tuple({tool.name: tool for part in self._ask_all() for tool in part.tools()}.values())

    def legal_actions(self) -> tuple[str, ...]:
        """Return what is legal in the environment of the task; none where it lists nothing."""
        part = self.inner
        return tuple(part.legal_actions()) if isinstance(part, Legal) else ()

    def seats(self) -> tuple[str, ...]:
        """Return the seats of the task's environment."""
        part = self.inner
        return part.seats() if isinstance(part, Seats) else (ALONE,)

    def seat(self) -> str:
        """Return the seat that acts next."""
        part = self.inner
        return part.seat() if isinstance(part, Seats) else ALONE

    def mistaken_action(self, rng: Random) -> Action:
        """Return a typical mistake where the task's environment knows some, else a random valid action."""
        part = self.inner
        return part.mistaken_action(rng) if isinstance(part, Fallible) else random_action(part, rng)

    def state_key(self) -> str:
        """Return the name of the environment and the key of its state."""
        return f"{self._now}:{cast(StateKey, self.inner).state_key()}"

    def kill(self) -> None:
        """End every environment now."""
        for part in list(self._built.values()):
            cast(Killable, part).kill()

    def drain(self) -> None:
        """Close what environments keep open for others of their kind."""
        for part in self._pooled.values():
            part.drain()

    def close(self) -> None:
        """Close what was built."""
        built, self._built, self._now = self._built, {}, ""
        for part in built.values():
            part.close()

    def _part(self, name: str) -> Environment:
        """Return the environment `name`."""
        if name not in self._built:
            part = find_single(self._parts[name].spec)()
            part = self._built[name] = part if self._around is None else self._around(part)
            if isinstance(part, Pooled):
                self._pooled[name] = part
        return self._built[name]

    def _ask_all(self) -> Sequence[Environment]:
        """Return the environment of the task, or all."""
        return [self.inner] if self._now else list(self.parts().values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """What all worlds of a mixture are capable of, the tags of any, and what bounds them together."""

    shared: frozenset[type]
    tags: frozenset[str]
    max_turns: int
    return_range: tuple[float, float]
    evaluation_only: bool
    later_words: tuple[str, ...]
    parallel: int


@cache
def _describe(worlds: str) -> _Description:
    """Return what `worlds` are together; one that is for evaluation only makes the mixture so.

    Raises:
        UsageError: two of them have a tool of one name with other arguments.
    """
    shared, tags, parallel = set(CAPABILITIES), set[str](), set[int]()
    turns, low, high, evaluation_only, later_words = 0, 0.0, 0.0, False, list[str]()
    listed: list[tuple[str, tuple[ToolSpec, ...]]] = []
    for part in parts_of(worlds):
        with closing(find_single(part.spec)()) as environment:
            shared = {capability for capability in shared if isinstance(environment, capability)}
            tags |= type(environment).tags
            turns = max(turns, environment.max_turns)
            low, high = min(low, environment.return_range[0]), max(high, environment.return_range[1])
            evaluation_only |= environment.evaluation_only
            later_words += environment.later_words
            parallel.add(environment.parallel)
            listed.append((part.spec, environment.tools()))
    if clash := find_clash(listed):
        tool, one, other = clash
        raise UsageError(
            f"environment mix:{worlds}: got the tool {tool!r} with other arguments in {one} and in {other}; rename "
            "it in one of them, or train them apart"
        )
    return _Description(
        shared=frozenset(shared),
        tags=frozenset(tags),
        max_turns=turns,
        return_range=(low, high),
        evaluation_only=evaluation_only,
        later_words=tuple(later_words),
        parallel=min(parallel - {0}, default=0),
    )
