"""What a game of `bandit` is: a frozen value that knows its observation, its legal moves, and what each move leads to.

A game holds all its state, chance included, so that it is its own snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from quintain.types import NOTHING


class Game(Protocol):
    """A small game."""

    def describe(self) -> str:
        """Return the first observation."""
        ...

    def legal(self) -> tuple[str, ...]:
        """Return the moves that can be made; none when the game is over."""
        ...

    def play(self, move: str) -> "MoveResult":
        """Return what a legal `move` leads to."""
        ...

    def expert(self) -> str:
        """Return the expert's move."""
        ...

    def key(self) -> str:
        """Return a text that is equal exactly when the state is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """What a move led to: ``MoveResult(game=game, text="red paid 1", dense=0.1)``."""

    game: Game
    text: str
    dense: float = 0.0
    """Reward of this move, where moves are rewarded."""
    sparse: float = 0.0
    """Reward of this move, where only the end is rewarded."""
    terms: Mapping[str, float] = NOTHING
    """What else there is to say of this move, in numbers that add up over the game; none of it is paid."""
    is_over: bool = False
    is_success: bool = False
