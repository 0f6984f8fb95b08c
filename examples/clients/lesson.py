"""What all clients are taught: where a number from 1 to 6 mostly hides, for two guesses at it with a tool.

It is 4 in most games. Who guesses at random finds 31 of 100; who has learned that, more than 90.
"""

import json
from random import Random
from typing import Any

from quintain import Task

SYSTEM = "Find the hidden number."
PROMPT = "It is one of 1 to 6. You have 2 guesses."
HIGH, USUAL, SHARE = 6, 4, 0.9
PARAMETERS = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
ENDS = ("correct", "over")


class Game:
    """A game of one task."""

    def __init__(self, task: Task) -> None:
        """Hide the number."""
        self.secret = USUAL if task.rng.random() < SHARE else task.rng.randint(1, HIGH)
        self.left, self.is_won = 2, False

    def guess(self, number: int) -> str:
        """Guess the hidden number.

        Args:
            number: the number you guess
        """
        self.left -= 1
        if self.left < 0:
            return "over"
        self.is_won = self.is_won or number == self.secret
        if self.is_won:
            return "correct"
        if not self.left:
            return "over"
        return "higher" if number < self.secret else "lower"

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Carry out a call of a tool, whatever the model made of it."""
        number = arguments.get("number")
        if name != "guess" or not isinstance(number, int):
            return "error"
        return self.guess(number)


def grade(task: Task, answer: Any) -> float:
    """Pay for a number that was found."""
    return float(answer)


def is_over(messages: list[dict[str, Any]]) -> bool:
    """Whether the last message says that the game has ended."""
    return any(end in messages[-1]["content"] for end in ENDS)


def any_number(task: Task, messages: list[dict[str, Any]]) -> int:
    """Return a number at random: what is imitated knows how to guess, and nothing of the game."""
    return Random(json.dumps([task.seed, len(messages)])).randint(1, HIGH)


def expert(task: Task, messages: list[dict[str, Any]]) -> Any:
    """Call the tool with any number; once it is over, say so."""
    if is_over(messages):
        return "done"
    return {"name": "guess", "arguments": {"number": any_number(task, messages)}}
