"""Guess a hidden number from "higher" and "lower": the smallest world in which turns matter.

Families it stands for: multi-turn search with tools. The expert halves the interval that is left, which no strategy
beats on average. The reward is 1 for naming the number, else 0.
"""

import re
from typing import ClassVar

from quintain.environments.protocol import Environment, tool_action
from quintain.environments.tools import tool
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, ToolCall

WRITTEN = re.compile(r"\s*(?:guess\s+)?(-?\d{1,18})\s*[.!]?\s*", re.IGNORECASE)
"""A guess in plain text: ``16`` or ``guess 16``."""
State = tuple[int, int, int]


class Guess(Environment):
    """Find the hidden number with as few guesses as you can."""

    name = "guess"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "tools", "reasoning"})

    def __init__(self, *, low: int = 1, high: int = 32, max_turns: int = 10) -> None:
        """Hide a number from `low` to `high`, both included.

        Raises:
            UsageError: the range is empty, or there are no turns.
        """
        if low > high or max_turns < 1:
            raise UsageError(
                f"guess: got low={low}, high={high}, max_turns={max_turns}; "
                "give low <= high and max_turns >= 1"
            )
        self.low, self.high, self.max_turns = low, high, max_turns
        self._secret, self._least, self._most = low, low, high

    def reset(self, task: Task) -> str:
        """Hide a number."""
        self._secret = task.rng.randint(self.low, self.high)
        self._least, self._most = self.low, self.high
        return f"Find the hidden number between {self.low} and {self.high}."

    def step(self, action: Action) -> StepResult:
        """Take a guess as a tool call, or written out when no tool was called."""
        written = WRITTEN.fullmatch(action.text)
        if action.error is None and not action.tool_calls and written:
            action = Action(tool_calls=(ToolCall(name="guess", arguments={"number": int(written[1])}),))
        return super().step(action)

    @tool
    def guess(self, number: int) -> str:
        """Guess the hidden number.

        Args:
            number: the number you guess
        """
        if number == self._secret:
            return self.finish("correct", reward=1.0)
        if number < self._secret:
            self._least = max(self._least, number + 1)
            return "higher"
        self._most = min(self._most, number - 1)
        return "lower"

    def expert_action(self) -> Action:
        """Return the guess that halves what is left."""
        return tool_action("guess", number=(self._least + self._most) // 2)

    def snapshot(self) -> State:
        """Return the number and what the guesses told of it."""
        return self._secret, self._least, self._most

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._secret, self._least, self._most = state

    def state_key(self) -> str:
        """Return the number and the interval that is left."""
        return f"{self._secret} in {self._least} to {self._most}"
