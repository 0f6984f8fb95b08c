"""r = .5·format + grades/50 - .2·collisions - .2·constraints: laying out rooms, MetaSpatial (arXiv 2503.18470).

Format: 0 for what is no list, .1 for broken entries, .5 for a wrong number of things, 1 otherwise. Only a layout of
format 1 is graded: everything else has no grade, so that a list of keys is never worth more than a layout. The one
rule: a judge that failed gives no number at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

Rectangle = tuple[float, float, float, float]
"""x, y, width, depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is to be laid out: ``Room(width=4, depth=3, things=("bed", "desk"))``."""

    width: float
    depth: float
    things: tuple[str, ...]


def layout_of(answer: object, room: Room) -> tuple[float, dict[str, Rectangle]]:
    """Return the format score of a parsed JSON `answer` and the rectangles in it; they are {} below format 1.

    An answer is a list of ``{"id": …, "x": …, "y": …, "width": …, "depth": …}``.
    """
    if not isinstance(answer, list):
        return 0.0, {}
    found: dict[str, Rectangle] = {}
    for entry in answer:  # pyright: ignore[reportUnknownVariableType]
        rectangle = rectangle_of(entry)
        if rectangle is None or entry["id"] in found:
            return 0.1, {}
        found[entry["id"]] = rectangle
    if set(found) != set(room.things):
        return 0.5, {}
    return 1.0, found


def rectangle_of(entry: object) -> Rectangle | None:
    """Return the rectangle that `entry` names, None where something is missing or no number."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str):
        return None
    fields: list[Any] = [entry.get(name) for name in ("x", "y", "width", "depth")]
    if any(isinstance(field, bool) or not isinstance(field, int | float) for field in fields):
        return None
    if fields[2] <= 0 or fields[3] <= 0:
        return None
    return float(fields[0]), float(fields[1]), float(fields[2]), float(fields[3])


def collision_ratio(rectangles: Mapping[str, Rectangle]) -> float:
    """Return the share of pairs that overlap; touching is no overlap."""
    pairs = list(combinations(rectangles.values(), 2))
    return sum(overlaps(a, b) for a, b in pairs) / len(pairs) if pairs else 0.0


def overlaps(a: Rectangle, b: Rectangle) -> bool:
    """Return whether two rectangles share more than an edge."""
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def outside_ratio(rectangles: Mapping[str, Rectangle], room: Room) -> float:
    """Return the share of things that stand partly outside of `room`."""
    out = [
        x < 0 or y < 0 or x + width > room.width or y + depth > room.depth
        for x, y, width, depth in rectangles.values()
    ]
    return sum(out) / len(out) if out else 0.0


def arrangement_score(answer: object, room: Room, grades: Sequence[float] | None = ()) -> float | None:
    """Return the reward of a parsed `answer`; `grades` are up to five of 0 to 10, () for no judge, None: it failed.

    Example: two things that overlap, no judge → .5 - .2 = .3; a key for each thing instead of a list → 0.
    """
    if grades is None:
        return None
    form, rectangles = layout_of(answer, room)
    if not rectangles:
        return 0.5 * form
    penalty = 0.2 * collision_ratio(rectangles) + 0.2 * outside_ratio(rectangles, room)
    return 0.5 * form + sum(grades) / 50 - penalty
