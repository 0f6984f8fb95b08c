"""What the agent of a BabyAI level sees, as a short line of text: ``red ball 3 ahead 2 left, wall 4 ahead``.

The view is minigrid's own: 7 by 7 cells, the agent in the middle of the near edge; walls and closed doors
hide what is behind them. Objects come nearest first. It is computed from the cells, without the picture.
"""

from collections.abc import Sequence
from functools import cache
from typing import Protocol, cast

SIZE = 7
MIDDLE = SIZE // 2
EVERYTHING = (1 << SIZE) - 1
"""A row of the view as bits, one per column from left to right, all set."""
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Step ahead for each direction: right, down, left, up."""


class Cell(Protocol):
    """An object of minigrid, as far as the view needs it."""

    type: str
    color: str


class Door(Cell, Protocol):
    """A door, which also has a state."""

    is_open: bool
    is_locked: bool


def describe(cells: Sequence[Cell | None], width: int, agent: tuple[int, int, int]) -> str:
    """Return what the agent at (x, y, direction) sees of `cells`, a grid in row-major order.

    Example: ``"red ball 3 ahead 2 left, wall 4 ahead"``; ``"nothing"`` when there is nothing but floor.
    """
    found: list[tuple[int, str]] = []
    wall = ""
    seen = 1 << MIDDLE
    for ahead in range(SIZE):
        row = _row(cells, width, agent, ahead)
        if row.count(None) == SIZE:
            seen = _spread(seen, EVERYTHING)[1]
            continue
        clear = EVERYTHING
        things: list[tuple[int, Cell]] = []
        for column, cell in enumerate(row):
            if cell is not None:
                things.append((column, cell))
                if _hides(cell):
                    clear ^= 1 << column
        seen, beyond = _spread(seen, clear)
        for column, cell in things:
            if not seen >> column & 1:
                continue
            if cell.type == "wall":
                if column == MIDDLE and not wall:
                    wall = f"wall {ahead} ahead"
            elif cell.type != "floor" and (ahead or column != MIDDLE):
                rank, place = _PLACES[ahead][column]
                found.append((rank, f"{name(cell)} {place}"))
        seen = beyond
        if not seen:
            break
    found.sort()
    parts = [text for _, text in found]
    if wall:
        parts.append(wall)
    return ", ".join(parts) or "nothing"


def _row(
    cells: Sequence[Cell | None], width: int, agent: tuple[int, int, int], ahead: int
) -> list[Cell | None]:
    """Return the seven cells that lie `ahead` steps in front of the agent, from its left to its right."""
    x, y, direction = agent
    height = len(cells) // width
    dx, dy = STEPS[direction]
    # A row of the view is a row or a column of the grid: one slice, padded where it leaves the grid.
    along, middle, length, stride = (
        (x + dx * ahead, y, height, width) if dx else (y + dy * ahead, x, width, 1)
    )
    if not 0 <= along < (width if dx else height):
        return [_OUTSIDE] * SIZE
    start = along if dx else along * width
    low, high = max(middle - MIDDLE, 0), min(middle + MIDDLE, length - 1)
    row = list(cells[start + low * stride : start + high * stride + 1 : stride])
    if len(row) < SIZE:
        row[:0] = [_OUTSIDE] * (low - middle + MIDDLE)
        row += [_OUTSIDE] * (SIZE - len(row))
    if direction in (1, 2):
        row.reverse()
    return row


def name(cell: Cell) -> str:
    """Return the words for `cell`: ``red ball``, ``locked red door``."""
    words = f"{cell.color} {cell.type}"
    return f"{_state(cast(Door, cell))} {words}" if cell.type == "door" else words


def _hides(cell: Cell) -> bool:
    """Whether nothing behind `cell` can be seen."""
    return cell.type == "wall" or (cell.type == "door" and not cast(Door, cell).is_open)


def _state(door: Door) -> str:
    """Return whether `door` is open, closed or locked."""
    if door.is_open:
        return "open"
    return "locked" if door.is_locked else "closed"


@cache
def _spread(seen: int, clear: int) -> tuple[int, int]:
    """Return what is seen of a row, and of the row beyond it, as bits.

    `seen` are the cells seen from nearer by, `clear` those that can be seen through. These are the two sweeps
    of minigrid's ``Grid.process_vis``, its treatment of the outermost columns included.
    """
    beyond = 0
    for columns, step in ((range(SIZE - 1), 1), (range(SIZE - 1, 0, -1), -1)):
        for column in columns:
            if seen & clear & 1 << column:
                seen |= 1 << column + step
                beyond |= 1 << column | 1 << column + step
    return seen, beyond


def _place(ahead: int, right: int) -> str:
    """Return the words for a relative position: ``3 ahead 2 left``."""
    words = [f"{ahead} ahead"] if ahead else []
    if right:
        words.append(f"{abs(right)} {'right' if right > 0 else 'left'}")
    return " ".join(words)


class _Outside:
    """What lies beyond the edge of the grid: wall."""

    type = "wall"
    color = "grey"


_OUTSIDE: Cell = _Outside()
_PLACES = tuple(
    tuple(
        ((ahead + abs(right)) * 100 + ahead * 10 + right + MIDDLE, _place(ahead, right))
        for right in range(-MIDDLE, MIDDLE + 1)
    )
    for ahead in range(SIZE)
)
"""[steps ahead][column] → (rank: nearest first, then from the side, then from the left; words)."""
