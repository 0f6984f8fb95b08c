"""The screens of `screen`: labelled boxes that do not overlap, and what to do with them.

A box includes its edges, and coordinates count from the upper left corner of the screen.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from quintain.errors import UsageError

Kind = Literal["click", "menu", "type", "form"]
GOALS: tuple[Kind, ...] = ("click", "menu", "type", "form")
BUTTONS = ("save", "open", "print", "help", "share", "zoom", "undo", "find", "copy", "mute", "play", "lock")
FIELDS = ("name", "city", "color")
MENU, OK = "menu", "ok"
ITEMS = ("cut", "paste", "export", "rename", "sort", "quit")
TEXTS = ("anna", "ben", "carl", "dora", "oslo", "rome", "lima", "cairo", "red", "blue", "green", "pink")
CELL = (12, 6)
"""The least width and height of the part of the screen that a box lies in."""
MIN_BOX = (4, 3)
MIN_SCALE, MAX_SCALE = 0.5, 100.0
"""Within these every box keeps a point of its own, and coordinates stay short."""


class Box(NamedTuple):
    """A box with its edges: ``Box("save", 10, 5, 29, 12)`` is 20 wide and 8 high."""

    label: str
    left: int
    top: int
    right: int
    bottom: int

    def contains(self, x: int, y: int) -> bool:
        """Whether the point lies in the box or on its edge."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def distance(self, x: int, y: int) -> float:
        """Return how far the point is from the nearest point of the box; 0 inside."""
        aside = max(self.left - x, 0, x - self.right)
        above = max(self.top - y, 0, y - self.bottom)
        return math.hypot(aside, above)

    @property
    def center(self) -> tuple[int, int]:
        """The point in the middle, rounded down."""
        return (self.left + self.right) // 2, (self.top + self.bottom) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to do: ``Goal(kind="type", target="city", texts=(("city", "oslo"),))``."""

    kind: Kind
    target: str
    """what to click at last"""
    texts: tuple[tuple[str, str], ...] = ()

    def words(self) -> str:
        """Return the task in words."""
        typed = ", ".join(f"{text} into {field}" for field, text in self.texts)
        return {
            "click": f"Task: click {self.target}.",
            "menu": f"Task: choose {self.target} in the menu.",
            "type": f"Task: type {typed}.",
            "form": f"Task: type {typed}, then click ok.",
        }[self.kind]

    def parts(self) -> tuple[str, ...]:
        """Return the subgoals: boxes to click, and texts to type as ``field=text``."""
        clicks = {"click": (self.target,), "menu": (MENU, self.target), "type": (), "form": (OK,)}[self.kind]
        return (*(part for field, text in self.texts for part in (field, f"{field}={text}")), *clicks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A task: its goal, the boxes on the screen, and those that the menu shows when it is open."""

    goal: Goal
    width: int
    height: int
    boxes: tuple[Box, ...]
    items: tuple[Box, ...]

    @property
    def diagonal(self) -> float:
        """The longest distance on the screen."""
        return math.hypot(self.width - 1, self.height - 1)


class LayoutShape(NamedTuple):
    """The options that a screen is drawn by."""

    width: int
    height: int
    buttons: int
    fields: int
    items: int
    goal: Kind | Literal["any"]

    def check(self) -> None:
        """Raise a `UsageError` where there are no such screens."""
        width, height, buttons, fields, items, goal = self
        if not 1 <= buttons <= len(BUTTONS) or not 0 <= fields <= len(FIELDS) or not 0 <= items <= len(ITEMS):
            raise UsageError(
                f"screen: got buttons={buttons}, fields={fields}, items={items}; give 1 to {len(BUTTONS)} "
                f"buttons, 0 to {len(FIELDS)} fields and 0 to {len(ITEMS)} items"
            )
        needed = buttons + items + fields + (fields > 0) + (items > 0)
        if needed > num_cells(width, height):
            raise UsageError(
                f"screen: got {needed} boxes for {width} by {height} points, which hold "
                f"{num_cells(width, height)}; make it larger"
            )
        if (goal in ("any", "menu") and not items) or (goal in ("any", "type", "form") and not fields):
            raise UsageError(
                f"screen: got goal={goal}, fields={fields}, items={items}; give what the goal needs"
            )


def num_cells(width: int, height: int) -> int:
    """Return how many boxes a screen has room for."""
    return (width // CELL[0]) * (height // CELL[1])


def draw_layout(shape: LayoutShape, rng: random.Random) -> Layout:
    """Return a screen of `shape`: each box somewhere in a cell of its own, in any order."""
    kind: Kind = rng.choice(GOALS) if shape.goal == "any" else shape.goal
    fields = FIELDS[: shape.fields]
    buttons = rng.sample(BUTTONS, shape.buttons)
    items = rng.sample(ITEMS, shape.items)
    labels = [*buttons, *fields, *((OK,) if fields else ()), *((MENU,) if items else ())]
    columns, rows = shape.width // CELL[0], shape.height // CELL[1]
    cells = rng.sample(
        [(column, row) for column in range(columns) for row in range(rows)], len(labels + items)
    )
    size = (shape.width // columns, shape.height // rows)
    boxes = [_draw_box(label, cell, size, rng) for label, cell in zip([*labels, *items], cells, strict=True)]
    shown = boxes[: len(labels)]
    return Layout(
        goal=_draw_goal(kind, buttons, fields, items, rng),
        width=shape.width,
        height=shape.height,
        boxes=tuple(rng.sample(shown, len(shown))),
        items=tuple(boxes[len(labels) :]),
    )


def scale_layout(layout: Layout, scale: float) -> Layout:
    """Return `layout` with the screen and its boxes `scale` times as large, in whole points.

    A point stands for a square, so that a box from 4 to 9 reaches from 8 to 19 at twice the size. Boxes that did not
    overlap do not overlap then either.
    """

    def resize(box: Box) -> Box:
        left, top = int(box.left * scale), int(box.top * scale)
        return Box(
            box.label,
            left,
            top,
            max(left, int((box.right + 1) * scale) - 1),
            max(top, int((box.bottom + 1) * scale) - 1),
        )

    return replace(
        layout,
        width=int(layout.width * scale),
        height=int(layout.height * scale),
        boxes=tuple(map(resize, layout.boxes)),
        items=tuple(map(resize, layout.items)),
    )


def _draw_goal(
    kind: Kind, buttons: Sequence[str], fields: Sequence[str], items: Sequence[str], rng: random.Random
) -> Goal:
    """Return a goal of `kind` among these labels."""
    if kind == "click":
        return Goal(kind=kind, target=rng.choice(buttons))
    if kind == "menu":
        return Goal(kind=kind, target=rng.choice(items))
    asked = (rng.choice(fields),) if kind == "type" else tuple(fields)
    texts = tuple((field, rng.choice(TEXTS)) for field in asked)
    return Goal(kind=kind, target=OK if kind == "form" else asked[0], texts=texts)


def _draw_box(label: str, cell: tuple[int, int], size: tuple[int, int], rng: random.Random) -> Box:
    """Return a box somewhere within `cell`, at most as large as that."""
    start: list[int] = []
    end: list[int] = []
    for number, length, least in zip(cell, size, MIN_BOX, strict=True):
        extent = rng.randint(least, length)
        first = number * length + rng.randint(0, length - extent)
        start.append(first)
        end.append(first + extent - 1)
    return Box(label, start[0], start[1], end[0], end[1])
