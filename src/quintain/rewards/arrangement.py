"""r = .5·format + grades/50 - .2·collisions - .2·constraints: laying out rooms, MetaSpatial (arXiv 2503.18470).

Format: 0 for what is no list, .1 for broken entries, .5 for a wrong number of things, 1 otherwise. Constraints: that
each thing stands inside of the room and on no pillar, and some against a wall. Only a layout of format 1 is graded:
everything else has no grade, so that a list of keys is never worth more than a layout. A judge that failed gives no
number at all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

Rectangle = tuple[float, float, float, float]
"""x, y, width, depth."""
Place = tuple[float, float]
MAX_GRADES, BEST_GRADE = 5, 10.0
LARGEST = 1e9
"""No coordinate is larger: above, sums of floats would lose what is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is to be laid out: ``Room(width=4, depth=3, things=("bed", "desk"), sizes=((2, 1), (1, 1)))``."""

    width: float
    depth: float
    things: tuple[str, ...]
    sizes: tuple[tuple[float, float], ...] = ()
    """width and depth of each thing; empty where a layout tells them"""
    walls: tuple[str, ...] = ()
    """things that must stand against a wall"""
    pillars: tuple[Place, ...] = ()
    """corners of squares of 1 by 1 where nothing can stand"""

    def size(self, thing: str) -> tuple[float, float] | None:
        """Return width and depth of `thing`, None where a layout tells them or there is no such thing."""
        return dict(zip(self.things, self.sizes, strict=True)).get(thing) if self.sizes else None


def layout_of(answer: object, room: Room) -> tuple[float, dict[str, Rectangle]]:
    """Return the format score of a parsed JSON `answer` and the rectangles in it; they are {} below format 1.

    An answer is a list of ``{"id": …, "x": …, "y": …, "width": …, "depth": …}``, or of ``[id, x, y, width, depth]``.
    Where the room knows the sizes, the last two may be left out; given, they must be the thing's, as it is or turned.
    """
    if not isinstance(answer, list):
        return 0.0, {}
    found: dict[str, Rectangle] = {}
    for entry in cast("list[object]", answer):
        name, rectangle = rectangle_of(entry, room)
        if rectangle is None or name in found:
            return 0.1, {}
        found[name] = rectangle
    if set(found) != set(room.things):
        return 0.5, {}
    return 1.0, found


def rectangle_of(entry: object, room: Room) -> tuple[str, Rectangle | None]:
    """Return the name and the rectangle in `entry`; no rectangle where something is missing, wrong or no number."""
    if isinstance(entry, Mapping):
        named = cast("Mapping[str, Any]", entry)
        fields = [named[key] for key in ("id", "x", "y", "width", "depth") if key in named]
        is_whole = len(fields) in (3, 5) and set(named) >= {"id", "x", "y"}
    else:
        fields = cast("list[Any]", entry) if isinstance(entry, list) else []
        is_whole = len(fields) in (3, 5)
    if not is_whole or not isinstance(fields[0], str) or not all(map(_is_length, fields[1:])):
        return "", None
    name, size = fields[0], room.size(fields[0])
    if room.sizes and size is None:
        size = (1.0, 1.0)  # what is not in the room has no size to be wrong about
    given = (float(fields[3]), float(fields[4])) if len(fields) == 5 else size
    if given is None or min(given) <= 0 or (name in room.things and size not in (None, given, given[::-1])):
        return name, None
    return name, (float(fields[1]), float(fields[2]), *given)


def _is_length(value: object) -> bool:
    """Return whether `value` is a number that a room can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def collisions(rectangles: Mapping[str, Rectangle]) -> list[tuple[str, str]]:
    """Return the pairs that overlap; touching is no overlap."""
    return [(a, b) for a, b in combinations(rectangles, 2) if overlaps(rectangles[a], rectangles[b])]


def collision_ratio(rectangles: Mapping[str, Rectangle]) -> float:
    """Return the share of pairs that overlap."""
    num = math.comb(len(rectangles), 2)
    return len(collisions(rectangles)) / num if num else 0.0


def overlaps(a: Rectangle, b: Rectangle) -> bool:
    """Return whether two rectangles share more than an edge."""
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def outside(rectangles: Mapping[str, Rectangle], room: Room) -> list[str]:
    """Return the things that stand partly outside of `room`."""
    return [
        name
        for name, (x, y, width, depth) in rectangles.items()
        if x < 0 or y < 0 or x + width > room.width or y + depth > room.depth
    ]


def on_pillars(rectangles: Mapping[str, Rectangle], room: Room) -> list[tuple[str, Place]]:
    """Return the things that stand on pillars of `room`, each with the pillar."""
    return [
        (name, pillar)
        for name, rectangle in rectangles.items()
        for pillar in room.pillars
        if overlaps(rectangle, (*pillar, 1, 1))
    ]


def off_wall(rectangles: Mapping[str, Rectangle], room: Room) -> list[str]:
    """Return the things that must stand against a wall of `room` and have no edge on one."""
    return [
        name
        for name, (x, y, width, depth) in rectangles.items()
        if name in room.walls and not (x == 0 or y == 0 or x + width == room.width or y + depth == room.depth)
    ]


def constraint_ratio(rectangles: Mapping[str, Rectangle], room: Room) -> float:
    """Return the share of constraints that are broken.

    That a thing stands inside of the room and on no pillar is one, that it stands against a wall another.
    """
    num = len(rectangles) + len(room.walls)
    misplaced = {*outside(rectangles, room), *(name for name, _ in on_pillars(rectangles, room))}
    return (len(misplaced) + len(off_wall(rectangles, room))) / num if num else 0.0


def arrangement_terms(
    answer: object, room: Room, grades: Sequence[float] | None = ()
) -> dict[str, float] | None:
    """Return the parts of the reward of a parsed `answer`: format, collision, constraint, and grades where there are.

    `grades` are up to five of 0 to 10, () for no judge; None, more of them, or one that is no such number: the judge
    failed, which comes to None. Below format 1 there is nothing to grade.
    """
    form, rectangles = layout_of(answer, room)
    if grades is None or len(grades) > MAX_GRADES or not all(0 <= grade <= BEST_GRADE for grade in grades):
        return None
    graded = {"grades": sum(grades) / 50 if rectangles else 0.0} if grades else {}
    return {
        "format": 0.5 * form,
        "collision": -0.2 * collision_ratio(rectangles),
        "constraint": -0.2 * constraint_ratio(rectangles, room),
        **graded,
    }


def arrangement_score(answer: object, room: Room, grades: Sequence[float] | None = ()) -> float | None:
    """Return the reward of a parsed `answer`, None where the judge failed; see `arrangement_terms`.

    Example: two things that overlap, no judge → .5 - .2 = .3; a key for each thing instead of a list → 0.
    """
    terms = arrangement_terms(answer, room, grades)
    return None if terms is None else sum(terms.values())
