"""Tic-tac-toe against an opponent that plays perfectly in a share of its moves and at random in the others.

The expert plays so that no reply can beat it and, among such moves, so that most replies lose. What the opponent does
depends on its seed and the board alone.
"""

from dataclasses import dataclass, replace
from random import Random

from quintain.environments.tictactoe import EMPTY, free, outcome, put, value, worth
from quintain.types import derive_seed
from quintain.worlds.bandit.rules import MoveResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TicTacToe:
    """A game: ``TicTacToe(board="x...o....", seed=7, skill=0.5)``; the agent is x and moves next."""

    board: str
    seed: int
    skill: float
    """Share of the opponent's moves that are perfect."""

    def describe(self) -> str:
        """See `Game.describe`."""
        return describe_board(self.board)

    def legal(self) -> tuple[str, ...]:
        """See `Game.legal`."""
        return tuple(str(cell + 1) for cell in free(self.board)) if outcome(self.board) is None else ()

    def play(self, move: str) -> MoveResult:
        """Put an x, and let the opponent reply."""
        board = put(self.board, int(move) - 1, "x")
        if outcome(board) is None:
            board = put(board, self._reply(board), "o")
        result = outcome(board)
        after = replace(self, board=board)
        if result is None:
            return MoveResult(game=after, text=describe_board(board))
        says = {1: "you win", 0: "a draw", -1: "you lose"}[result]
        return MoveResult(
            game=after,
            text=f"{describe_board(board)}; {says}",
            dense=(result + 1) / 2,
            sparse=float(result == 1),
            is_over=True,
            is_success=result == 1,
        )

    def expert(self) -> str:
        """Return the safest move, of these the one after which most replies lose, of these the first."""
        return str(max(free(self.board), key=lambda cell: worth(put(self.board, cell, "x"), "o")) + 1)

    def key(self) -> str:
        """See `Game.key`."""
        return self.board

    def _reply(self, board: str) -> int:
        """Return the opponent's cell."""
        rng = Random(derive_seed("reply", self.seed, board))
        cells = free(board)
        if rng.random() < self.skill:
            best = min(value(put(board, cell, "o"), "x") for cell in cells)
            cells = tuple(cell for cell in cells if value(put(board, cell, "o"), "x") == best)
        return rng.choice(cells)


def describe_board(board: str) -> str:
    """Return the board in words: ``x: 1, 5; o: 3; free: 2, 4, 6, 7, 8, 9``."""
    cells = {mark: [str(n + 1) for n, found in enumerate(board) if found == mark] for mark in "xo."}
    return "; ".join(
        f"{name}: {', '.join(cells[mark]) or 'none'}"
        for name, mark in (("x", "x"), ("o", "o"), ("free", "."))
    )


def draw_tictactoe(skill: float, rng: Random) -> TicTacToe:
    """Return a game in which the opponent moves first or not, against an opponent of its own seed."""
    seed = rng.getrandbits(40)
    board = put(EMPTY, rng.randrange(9), "o") if rng.random() < 0.5 else EMPTY
    return TicTacToe(board=board, seed=seed, skill=skill)
