"""What environments around an environment share in which several seats speak before one thing is done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quintain.agents.deliberation import Deliberation
from quintain.environments.protocol import Environment, advance, begin, environment_name

if TYPE_CHECKING:
    from quintain.agents.protocol import Prompt
    from quintain.types import Action, Observation, Split, StepResult, Task


class SeatedWorld(Environment):
    """`inner`, and how often something was done in it; a subclass says who speaks when."""

    def __init__(self, inner: Environment) -> None:
        """Wrap `inner`."""
        self.inner = inner
        self.name, self.return_range = environment_name(inner), inner.return_range
        self._num_done = 0

    def _begin_inner(self, task: Task) -> Observation:
        """Begin the episode inside."""
        self._num_done = 0
        return begin(self.inner, task)

    def _act(self, action: Action) -> StepResult:
        """Do `action` inside; the result is cut where the environment's own turns are spent."""
        result = advance(self.inner, action)
        self._num_done += 1
        is_over = not result.is_terminated and self._num_done >= self.inner.max_turns
        return replace(result, is_truncated=result.is_truncated or is_over)

    def close(self) -> None:
        """Close the environment."""
        self.inner.close()

    def instructions(self) -> str:
        """Return the instructions of the environment."""
        return self.inner.instructions()

    def task(self, split: Split, index: int) -> Task:
        """Return the task of the environment."""
        return self.inner.task(split, index)


class Anew(Deliberation):
    """A session that begins anew with every question: all that counts stands in what it is shown."""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        self._inner = self._agent.open(replace(self._brief, legal_actions=legal_actions))
        return super().observe(observation, legal_actions)
