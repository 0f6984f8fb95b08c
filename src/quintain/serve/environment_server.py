"""One of our worlds as a server holds it: an episode at a time, behind a lock, told as JSON data.

Both protocols tell foreign clients what they understand (a text, a reward, whether it is over), and ours the whole
result under the key ``quintain``. What the world raises goes over the wire as an error with its owner, never as an
observation or a reward.
"""

import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from quintain.environments.protocol import Environment, Factory, Legal, advance, begin, environment_name
from quintain.environments.tools import OwnedFault
from quintain.environments.wire import observation_row, read_action, result_row, tool_row
from quintain.errors import QuintainError
from quintain.types import Action, Owner, Split, StepResult, ToolCall, as_text
from quintain.types.json_text import load_json

T = TypeVar("T")
Row = dict[str, Any]
BUSY_SECONDS = 60.0
"""How long a call waits for the one before it."""
CLOSE_SECONDS = 5.0
"""How long the end of a world waits for the call that it still carries out."""


class WorldTrouble(Exception):
    """A world that broke while it was served: ``WorldTrouble("raised ValueError", "environment", "ValueError")``."""

    def __init__(self, message: str, owner: Owner, kind: str) -> None:
        """Hold what happened and whose it is."""
        super().__init__(message, owner, kind)
        self.message = message
        self.owner: Owner = owner
        self.kind = kind

    def row(self) -> Row:
        """Return the trouble as JSON data."""
        return {"message": self.message, "owner": self.owner, "kind": self.kind}


class ServedEnvironment:
    """One instance of a world, for one client."""

    def __init__(self, make: Factory) -> None:
        """Build the world.

        Raises:
            WorldTrouble: it cannot be built.
        """
        self._lock = threading.Lock()
        self.world: Environment = _safely(make)
        self.last: StepResult | None = None
        """The last result; its observation is the first one at the start of an episode. None before."""
        self.score = 0.0
        """Return of the episode so far."""
        self.num_steps = 0
        self.is_over = True
        self._is_closed = False
        self._close: Callable[[], None] | None = self.world.close
        """What closes the world; None once it was called."""

    def facts(self) -> Row:
        """Return what a client must know of the world."""
        with self._turn():
            return _safely(lambda: facts_of(self.world))

    def begin(self, split: Split, index: int | None, seed: int | None = None) -> Row:
        """Start the episode of task `index` of `split`, or of `seed` where there is no index.

        Raises:
            WorldTrouble: the world broke.
        """
        with self._turn():
            return _safely(lambda: self._begin_episode(split, index, seed))

    def act(self, action: Action) -> Row:
        """Carry out `action`.

        Raises:
            WorldTrouble: the world broke, or there is no episode.
        """
        with self._turn():
            if self.is_over:
                raise WorldTrouble("the episode is over; reset first", "environment", "no_episode")
            return _safely(lambda: self._act(action))

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close the world; one that is still busy after `seconds` is closed when it is not.

        Raises:
            WorldTrouble: the world broke.
        """
        self._is_closed = True
        if self._lock.acquire(timeout=seconds):
            self._release()

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Have the world for one call.

        Raises:
            WorldTrouble: another call has it, or it is closed.
        """
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise WorldTrouble("the world is busy with another call", "environment", "busy")
        try:
            if self._is_closed:
                raise WorldTrouble("the world is closed", "environment", "closed")
            yield
        finally:
            self._release()

    def _release(self) -> None:
        """Give the world back, or close it where that was asked for meanwhile."""
        try:
            if self._is_closed and self._close is not None:
                close, self._close = self._close, None
                _safely(close)
        finally:
            self._lock.release()

    def _begin_episode(self, split: Split, index: int | None, seed: int | None) -> Row:
        task = self.world.task(split, index or 0)
        if index is None and seed is not None:
            task = replace(task, id=f"{environment_name(self.world)}/{split}/seed-{seed}", seed=seed)
        first = StepResult(observation=begin(self.world, task))
        self.last, self.score, self.num_steps, self.is_over = first, 0.0, 0, False
        row = {"observation": observation_row(first.observation), "prompt": task.prompt}
        return {**row, "legal": self.legal()}

    def _act(self, action: Action) -> Row:
        result = advance(self.world, action)
        self.last, self.score = result, self.score + result.reward
        self.num_steps += 1
        self.is_over = result.is_over
        return {"result": result_row(result), "legal": () if self.is_over else self.legal()}

    def legal(self) -> tuple[str, ...] | None:
        """Return the legal actions; None where the world lists none."""
        return tuple(self.world.legal_actions()) if isinstance(self.world, Legal) else None

    def shown(self) -> str:
        """Return the last observation as text."""
        return "" if self.last is None else as_text(self.last.observation)


def close_all(worlds: Iterable[ServedEnvironment]) -> None:
    """Close `worlds`; those that are busy have `CLOSE_SECONDS` in all, and what breaks is left alone."""
    ends = time.monotonic() + CLOSE_SECONDS
    for world in worlds:
        with suppress(WorldTrouble):
            world.close(max(0.0, ends - time.monotonic()))


def facts_of(world: Environment) -> Row:
    """Return what a client must know of `world`."""
    low, high = world.return_range
    finite = [bound if abs(bound) < float("inf") else None for bound in (low, high)]
    return {
        "name": environment_name(world),
        "instructions": world.instructions(),
        "tools": [tool_row(spec) for spec in world.tools()],
        "tags": sorted(type(world).tags),
        "max_turns": world.max_turns,
        "return_range": finite,
        "evaluation_only": world.evaluation_only,
        "is_legal": isinstance(world, Legal),
    }


def introduction(facts: Mapping[str, Any]) -> str:
    """Return what a foreign client's agent is told before the first observation."""
    parts = [str(facts["instructions"])]
    tools = cast("Sequence[Mapping[str, Any]]", facts["tools"])
    if tools:
        parts.append('Answer with a call such as {"name": "…", "arguments": {…}}. Tools:')
        parts += [json.dumps(tool, ensure_ascii=False) for tool in tools]
    return "\n".join(part for part in parts if part)


def action_in(text: str, has_tools: bool, whole: object = None) -> Action:
    """Return the action that a client sent: `whole` if it is ours, else `text`, in which calls are JSON.

    Example: ``action_in('{"name": "guess", "arguments": {"number": 16}}', True)`` is a call of ``guess``.
    """
    if isinstance(whole, dict):
        return read_action(cast("Mapping[str, Any]", whole))
    if not has_tools:
        return Action(text=text)
    try:
        found: object = load_json(text)
    except ValueError:
        return Action(text=text)
    calls = cast("Sequence[object]", found) if isinstance(found, list) else [found]
    read: list[ToolCall] = []
    for call in calls:
        row = cast("Mapping[str, Any]", call) if isinstance(call, dict) else {}
        if not isinstance(row.get("name"), str) or not isinstance(row.get("arguments", {}), dict):
            return Action(text=text, error='write a call as {"name": "…", "arguments": {…}}')
        read.append(ToolCall(name=row["name"], arguments=row.get("arguments", {})))
    return Action(text=text, tool_calls=tuple(read))


def _safely(call: Callable[[], T]) -> T:
    """Return the result of `call`; what it raises becomes a `WorldTrouble`."""
    try:
        return call()
    except OwnedFault as fault:
        raise WorldTrouble(str(fault), fault.owner, fault.kind) from fault
    except QuintainError as error:
        raise WorldTrouble(str(error), "environment", "contract") from error
    except Exception as error:
        raise WorldTrouble(f"{type(error).__name__}: {error}", "environment", type(error).__name__) from error
