"""The rules of tic-tac-toe and its values under perfect play, for the environments that have it.

A board is nine characters, row by row: ``x``, ``o`` or ``.`` for an empty cell. x wants the value 1, o wants -1.
"""

from functools import cache

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
EMPTY = "." * 9


def free(board: str) -> tuple[int, ...]:
    """Return the empty cells."""
    return tuple(cell for cell, mark in enumerate(board) if mark == ".")


def put(board: str, cell: int, mark: str) -> str:
    """Return `board` with `mark` in `cell`."""
    return board[:cell] + mark + board[cell + 1 :]


@cache
def outcome(board: str) -> int | None:
    """Return 1 when x has a line, -1 when o has, 0 when the board is full, None when the game goes on."""
    for a, b, c in LINES:
        if board[a] != "." and board[a] == board[b] == board[c]:
            return 1 if board[a] == "x" else -1
    return None if "." in board else 0


@cache
def value(board: str, mover: str) -> int:
    """Return what both sides playing perfectly leads to: 1, 0 or -1 for x."""
    result = outcome(board)
    if result is not None:
        return result
    values = [value(put(board, cell, mover), "o" if mover == "x" else "x") for cell in free(board)]
    return max(values) if mover == "x" else min(values)


@cache
def worth(board: str, mover: str) -> tuple[int, float]:
    """Return the value of `board`, and what x can expect of it against random replies."""
    result = outcome(board)
    if result is not None:
        return result, float(result)
    after = [worth(put(board, cell, mover), "o" if mover == "x" else "x") for cell in free(board)]
    if mover == "x":
        return max(after)
    return min(found for found, _ in after), sum(expected for _, expected in after) / len(after)
