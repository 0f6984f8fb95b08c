"""What environments around an environment share in which several seats speak before one thing is done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from quintain.agents.deliberation import Deliberation
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import Environment, Expert, Seats, advance
from quintain.environments.wrapped import ACTIONS, Wrapped

if TYPE_CHECKING:
    from quintain.agents.protocol import Prompt
    from quintain.types import Action, Observation, StepResult, Task, ToolSpec


class SeatedWorld(Wrapped):
    """`inner`, and how often something was done in it; a subclass says who speaks when."""

    drops: ClassVar[frozenset[type]] = ACTIONS
    """Seats of its own act here, in words of their own."""
    adds: ClassVar[frozenset[type]] = frozenset({Expert, Fallible, Seats})

    def __init__(self, inner: Environment) -> None:
        """Wrap `inner`."""
        self._num_done = 0
        super().__init__(inner)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return nothing: seats speak."""
        return ()

    def begin_inner(self, task: Task) -> Observation:
        """Begin the episode inside."""
        self._num_done = 0
        return super().begin_inner(task)

    def _act(self, action: Action) -> StepResult:
        """Do `action` inside; the result is cut where the environment's own turns are spent."""
        return self._count_turn(advance(self.inner, action))

    def _count_turn(self, result: StepResult) -> StepResult:
        """Return `result`, cut where the environment's own turns are spent."""
        self._num_done += 1
        is_over = not result.is_terminated and self._num_done >= self.inner.max_turns
        return replace(result, is_truncated=result.is_truncated or is_over)


class Anew(Deliberation):
    """A session that begins anew with every question: all that counts stands in what it is shown."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        self._inner = self._agent.open(replace(self._brief, legal_actions=legal_actions))
        return super().observe(observation, legal_actions)
