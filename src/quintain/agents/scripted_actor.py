"""A world in which another acts: the policy names a thing, and a script walks to it, takes it or opens it.

This is what `PlanAndAct` with ``actor="scripted"`` puts around an environment: the policy is a strategist for an actor
that has no weights and cannot change (EPO, arXiv 2502.12486). Every turn is one strategy; rewards of what the actor did
meanwhile add up in it. A deaf actor goes to some thing of its own choice, whatever it is told: no strategy helps it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from quintain.environments.noisy import Fallible
from quintain.environments.protocol import (
    Environment,
    Expert,
    FindsWay,
    Snapshot,
    StateKey,
    advance,
    environment_name,
    join_results,
)
from quintain.environments.wrapped import ACTIONS, Wrapped
from quintain.errors import UsageError
from quintain.types import Action, StepResult, derive_seed

if TYPE_CHECKING:
    from quintain.types import Observation, Task, ToolSpec

STRATEGIST = "Another acts for you: name one thing, and it is gone to, taken or opened."


class LedWorld(Wrapped):
    """`inner`, whose actions a script takes: ``LedWorld(KeyDoor())``; made by `PlanAndAct.equip`."""

    drops: ClassVar[frozenset[type]] = ACTIONS
    """Names of things are said here, in the place of actions."""
    adds: ClassVar[frozenset[type]] = frozenset({Expert, Fallible})
    own: ClassVar[tuple[str, ...]] = ("_seed", "_num_turns", "_num_acted")

    def __init__(self, inner: Environment, *, is_deaf: bool = False) -> None:
        """Let a script act in `inner`; one that `is_deaf` chooses where to go by task and turn alone.

        Raises:
            UsageError: `inner` does not know how to get to a thing.
        """
        require_ways(inner, "an actor that follows hints", ", or let the policy act (actor=policy)")
        super().__init__(inner)
        self._is_deaf = is_deaf
        self._seed, self._num_turns, self._num_acted = 0, 0, 0

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside."""
        self._seed, self._num_turns, self._num_acted = task.seed, 0, 0
        return self.begin_inner(task)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return nothing: things are named."""
        return ()

    def step(self, action: Action) -> StepResult:
        """Let the actor do what the named thing takes; a name that it can do nothing with costs a turn."""
        world = cast(FindsWay, self.inner)
        thing = self._read_thing(action)
        done: list[StepResult] = []
        while (following := world.follow(thing)) is not None and self._num_acted < self.max_turns:
            result, goes_on = take_step(self.inner, following)
            done.append(result)
            self._num_acted += 1
            if not goes_on:
                break
        if not done:
            self._num_acted += 1
            said = (
                f"Error: {action.error}" if action.error is not None else f"Nothing is done about {thing!r}."
            )
            there = f"{said} Things here: {', '.join(world.things())}"
            done.append(StepResult(observation=there, is_success=False, is_valid=False))
        result = join_results(done)
        is_over = not result.is_terminated and self._num_acted >= self.max_turns
        return replace(result, is_truncated=result.is_truncated or is_over)

    def _read_thing(self, action: Action) -> str:
        """Return the thing that the actor goes for."""
        self._num_turns += 1
        if self._is_deaf:
            things = cast(FindsWay, self.inner).things()
            return random.Random(derive_seed("deaf", self._seed, self._num_turns)).choice(things)
        return "" if action.error is not None else " ".join(action.text.lower().split())

    def instructions(self) -> str:
        """Return the instructions of the environment, and what is asked of the policy."""
        return "\n".join(part for part in (self.inner.instructions(), STRATEGIST) if part)

    def expert_action(self) -> Action:
        """Return the name of the thing that comes next."""
        return Action(text=cast(FindsWay, self.inner).expert_thing())

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return the name of some thing that is here; see `noisy.Fallible`."""
        return Action(text=rng.choice(cast(FindsWay, self.inner).things()))


def require_ways(inner: Environment, asked: str, otherwise: str = "") -> None:
    """Raise where no script knows how to get to a thing in `inner`; `otherwise` is what helps besides another one.

    Raises:
        UsageError: it does not know the way, or its states cannot be told apart or brought back.
    """
    if not (isinstance(inner, FindsWay) and isinstance(inner, StateKey) and isinstance(inner, Snapshot)):
        raise UsageError(
            f"{asked}: got {environment_name(inner)}, which does not know the way to a thing; take keydoor, house or "
            f"craft{otherwise}"
        )


def take_step(inner: Environment, action: Action) -> tuple[StepResult, bool]:
    """Return what a script's `action` led to, and whether it goes on: the state is another, the episode not over."""
    states = cast(StateKey, inner)
    before = states.state_key()
    result = advance(inner, action)
    return result, not result.is_over and states.state_key() != before
