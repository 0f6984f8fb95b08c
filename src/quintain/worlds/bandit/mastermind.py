"""Mastermind: a hidden row of colors, found from how many of a guess are right and how many are misplaced.

The expert guesses the first code that agrees with all it was told, in the order of the colors. An answer counts pegs
of the right color in the right place, then those in a wrong place, each peg once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from random import Random

from quintain.worlds.bandit.arms import NAMES
from quintain.worlds.bandit.rules import MoveResult

Code = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mastermind:
    """A game: ``Mastermind(colors=("red", "blue"), secret=(0, 1, 1), most=10, guesses=((0, 0, 0),))``."""

    colors: tuple[str, ...]
    secret: Code
    most: int
    """Guesses that are allowed."""
    guesses: tuple[Code, ...] = ()

    def describe(self) -> str:
        """See `Game.describe`."""
        return f"Colors: {', '.join(self.colors)}; {len(self.secret)} pegs"

    def legal(self) -> tuple[str, ...]:
        """See `Game.legal`."""
        if len(self.guesses) == self.most or self.secret in self.guesses:
            return ()
        return list_codes(self.colors, len(self.secret))

    def find_codes(self) -> Iterator[Code]:
        """Yield the codes that agree with every answer, in order."""
        told = [(guess, answer(self.secret, guess)) for guess in self.guesses]
        for code in codes(len(self.colors), len(self.secret)):
            if all(answer(code, guess) == said for guess, said in told):
                yield code

    def play(self, move: str) -> MoveResult:
        """Make a guess."""
        code = tuple(self.colors.index(word) for word in move.split())
        right, misplaced = answer(self.secret, code)
        after = replace(self, guesses=(*self.guesses, code))
        is_found = code == self.secret
        best = max((answer(self.secret, guess)[0] for guess in self.guesses), default=0)
        # Half is paid for the most pegs that were ever right at once, half for all of them.
        gain = max(right - best, 0) / (2 * len(self.secret))
        return MoveResult(
            game=after,
            text=f"right {right}, misplaced {misplaced}",
            dense=gain + 0.5 * is_found,
            sparse=float(is_found),
            is_over=is_found or len(after.guesses) == self.most,
            is_success=is_found,
        )

    def expert(self) -> str:
        """Return the first code that is left."""
        return " ".join(self.colors[peg] for peg in next(self.find_codes()))

    def key(self) -> str:
        """See `Game.key`."""
        return repr(self.guesses)


@lru_cache(maxsize=32)
def codes(num_colors: int, num_pegs: int) -> tuple[Code, ...]:
    """Return all codes in order."""
    return tuple(product(range(num_colors), repeat=num_pegs))


@lru_cache(maxsize=256)
def list_codes(colors: tuple[str, ...], num_pegs: int) -> tuple[str, ...]:
    """Return all codes as texts."""
    return tuple(" ".join(row) for row in product(colors, repeat=num_pegs))


@lru_cache(maxsize=1 << 17)
def answer(secret: Code, guess: Code) -> tuple[int, int]:
    """Return how many pegs of `guess` are right, and how many more have their color elsewhere in `secret`."""
    right = sum(a == b for a, b in zip(secret, guess, strict=True))
    common = sum(min(secret.count(color), guess.count(color)) for color in set(guess))
    return right, common - right


def draw_mastermind(num_pegs: int, num_colors: int, most: int, rng: Random) -> Mastermind:
    """Return a game with a random secret."""
    colors = tuple(rng.sample(NAMES, num_colors))
    return Mastermind(colors=colors, secret=rng.choice(codes(num_colors, num_pegs)), most=most)
