"""What the agent of a BabyAI level sees, as a short line of text: ``red ball 3 ahead 2 left, wall 4 ahead``.

The view is minigrid's own: 7×7 cells, the agent in the middle of the near edge, walls and closed doors hide
what is behind them. Objects come nearest first. It is computed from the level's cells, without the picture.
"""

from collections.abc import Sequence
from functools import cache
from typing import Protocol

SIZE = 7
MIDDLE = SIZE // 2
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
    x, y, direction = agent
    height = len(cells) // width
    found: list[tuple[int, str]] = []
    wall = ""
    seen = 1 << MIDDLE
    for ahead, offsets in enumerate(_OFFSETS[direction]):
        clear = 0
        row: list[Cell | None] = []
        for column, (dx, dy) in enumerate(offsets):
            i, j = x + dx, y + dy
            cell = cells[j * width + i] if 0 <= i < width and 0 <= j < height else _OUTSIDE
            row.append(cell)
            if cell is None or not _hides(cell):
                clear |= 1 << column
        seen, beyond = _spread(seen, clear)
        for column, cell in enumerate(row):
            if cell is None or not seen >> column & 1:
                continue
            if cell.type == "wall":
                if column == MIDDLE and not wall:
                    wall = f"wall {ahead} ahead"
            elif cell.type != "floor" and (ahead or column != MIDDLE):
                rank, place = _PLACES[ahead][column]
                found.append((rank, f"{name(cell)} {place}"))
        if not beyond:
            break
        seen = beyond
    found.sort()
    parts = [text for _, text in found]
    if wall:
        parts.append(wall)
    return ", ".join(parts) or "nothing"


def name(cell: Cell) -> str:
    """Return the words for `cell`: ``red ball``, ``locked red door``."""
    words = f"{cell.color} {cell.type}"
    return f"{_state(cell)} {words}" if cell.type == "door" else words


def _hides(cell: Cell) -> bool:
    """Whether nothing behind `cell` can be seen."""
    return cell.type == "wall" or (cell.type == "door" and _state(cell) != "open")


def _state(door: Cell) -> str:
    """Return whether `door` is open, closed or locked."""
    if door.is_open:  # type: ignore[attr-defined]
        return "open"
    return "locked" if door.is_locked else "closed"  # type: ignore[attr-defined]


@cache
def _spread(seen: int, clear: int) -> tuple[int, int]:
    """Return what is seen of a row, and of the row beyond it, as bits.

    `seen` are the cells seen from nearer by, `clear` those that can be seen through. These are the two sweeps of
    minigrid's ``Grid.process_vis``, its treatment of the outermost columns included.
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
_OFFSETS = tuple(
    tuple(
        tuple((ahead * dx - right * dy, ahead * dy + right * dx) for right in range(-MIDDLE, MIDDLE + 1))
        for ahead in range(SIZE)
    )
    for dx, dy in STEPS
)
"""[direction][steps ahead][column] → (dx, dy)."""
_PLACES = tuple(
    tuple(
        ((ahead + abs(right)) * 100 + ahead * 10 + right + MIDDLE, _place(ahead, right))
        for right in range(-MIDDLE, MIDDLE + 1)
    )
    for ahead in range(SIZE)
)
"""[steps ahead][column] → (rank: nearest first, then from the side, then from the left; words)."""
