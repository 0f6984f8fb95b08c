"""What both sides of the comparison are given: the same numbers, the same model folder, the same episodes.

Imports neither library, so that each side can read it from its own virtual environment.
"""

from __future__ import annotations

import random

HIGH = 32
MAX_TURNS = 6
TASKS, GROUP_SIZE = 8, 8
NUM_EPISODES = TASKS * GROUP_SIZE
GROWTH, LONGEST, GROWTH_EPISODES = (4, 8, 16, 32), 32, 16
PROMPT = f"Find the hidden number between 1 and {HIGH}."

DECODE_ROWS, DECODE_PROMPT, DECODE_NEW = 64, 256, 96
BATCHING_REQUESTS, BATCHING_NEW = 16, 32
SFT_ROWS, SFT_SHORTEST, SFT_LONGEST = 32, 50, 600


class GuessTool:
    """The number-guessing world, as both sides offer it to the model."""

    def __init__(self) -> None:
        """Wait for `reset`."""
        self._secret = 0
        self._reward = 0.0

    def reset(self, secret: int = 1, **_: object) -> str | None:
        """Hide `secret`."""
        self._secret = int(secret)
        self._reward = 0.0
        return None

    def guess(self, number: int) -> str:
        """
        Guess the hidden number.

        Args:
            number: the number you guess
        """
        if number == self._secret:
            self._reward = 1.0
            return "correct"
        return "higher" if self._secret > number else "lower"

    def get_reward(self) -> float:
        """Return 1 if the number was named."""
        return self._reward


def prompts(vocabulary: int, rows: int, length: int, seed: int = 0) -> list[list[int]]:
    """Return `rows` prompts of `length` ids below `vocabulary`."""
    rng = random.Random(seed)
    return [[rng.randrange(10, vocabulary) for _ in range(length)] for _ in range(rows)]


def streams(vocabulary: int, batches: int, seed: int = 0) -> list[list[int]]:
    """Return streams of 50 to 600 ids (mean 325) for `batches` batches of supervised training."""
    rng = random.Random(seed)
    return [
        [rng.randrange(10, vocabulary) for _ in range(rng.randint(SFT_SHORTEST, SFT_LONGEST))]
        for _ in range(batches * SFT_ROWS)
    ]
