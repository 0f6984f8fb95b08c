"""What both sides of the comparison are given: the same numbers, the same model folder, the same episodes.

Imports neither library, so that each side can read it from its own virtual environment.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

HIGH = 32
MAX_TURNS = 6
TASKS, GROUP_SIZE = 8, 8
NUM_EPISODES = TASKS * GROUP_SIZE
GROWTH, LONGEST, GROWTH_EPISODES = (4, 8, 16, 32), 32, 16
PROMPT = f"Find the hidden number between 1 and {HIGH}."

DECODE_PROMPT = 256
BATCHING_REQUESTS, BATCHING_NEW = 16, 32
SFT_SHORTEST, SFT_LONGEST = 50, 600


@dataclass(frozen=True, kw_only=True)
class Size:
    """A size of the model, and how much of it a processor decodes and trains in reasonable time."""

    shape: dict[str, int]
    """of a Qwen3, by the names of its configuration"""
    decode_rows: int
    decode_new: int
    sft_rows: int
    sft_steps: int


def shape(
    hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int, width: int
) -> dict[str, int]:
    """Return the shape of a Qwen3 whose heads are `width` wide."""
    return {
        "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": key_value_heads, "head_dim": width,
    }  # fmt: skip


TAUGHT = "1.7M"
"""The size that knows the world; the others have random weights, which cost as much to decode and to train."""
SIZES = {
    TAUGHT: Size(shape=shape(192, 512, 4, 4, 2, 48), decode_rows=64, decode_new=96, sft_rows=32, sft_steps=5),
    "30M": Size(shape=shape(512, 1408, 10, 8, 4, 64), decode_rows=32, decode_new=32, sft_rows=8, sft_steps=3),
    "135M": Size(
        shape=shape(576, 1536, 38, 9, 3, 64), decode_rows=16, decode_new=16, sft_rows=4, sft_steps=3
    ),
}


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


def streams(vocabulary: int, batches: int, rows: int, seed: int = 0) -> list[list[int]]:
    """Return streams of 50 to 600 ids (mean 325) for `batches` batches of `rows` of supervised training."""
    rng = random.Random(seed)
    return [
        [rng.randrange(10, vocabulary) for _ in range(rng.randint(SFT_SHORTEST, SFT_LONGEST))]
        for _ in range(batches * rows)
    ]
