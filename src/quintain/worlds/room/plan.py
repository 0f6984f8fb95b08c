"""Rooms of `room` and the greedy packer that fills them: what it cannot fill is not drawn.

The packer puts each thing, in the order given, on the first free place, row by row from the corner 0 0.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain, combinations, product
from random import Random

from quintain.rewards.arrangement import Place, Rectangle, Room, off_wall, overlaps

NAMES = ("bed", "desk", "sofa", "lamp", "shelf", "chair", "table", "piano", "chest", "plant")
Places = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomShape:
    """How rooms are drawn: ``RoomShape(width=5, depth=4, things=3, largest=3, walls=0, pillars=0, names=10)``."""

    width: int
    depth: int
    things: int
    largest: int
    """longest side of a thing"""
    walls: int
    """things that must stand against a wall"""
    pillars: int
    names: int
    """names that things may have"""


def num_drawn(shape: RoomShape) -> int:
    """Return how many rooms of `shape` can be drawn, those included that the packer cannot fill."""
    sizes = min(shape.largest, shape.width) * min(shape.largest, shape.depth)
    named = math.perm(shape.names, shape.things) * sizes**shape.things
    return named * math.comb(shape.things, shape.walls) * math.comb(shape.width * shape.depth, shape.pillars)


def draw_room(shape: RoomShape, rng: Random) -> Room:
    """Return a room that the packer can fill, whichever of its pillars are known."""
    cells = tuple(product(range(shape.width), range(shape.depth)))
    while True:
        names = tuple(rng.sample(NAMES[: shape.names], shape.things))
        sizes = tuple(
            (rng.randint(1, min(shape.largest, shape.width)), rng.randint(1, min(shape.largest, shape.depth)))
            for _ in names
        )
        walls = tuple(sorted(rng.sample(names, shape.walls), key=names.index))
        pillars = tuple(sorted(rng.sample(cells, shape.pillars)))
        room = Room(
            width=shape.width, depth=shape.depth, things=names, sizes=sizes, walls=walls, pillars=pillars
        )
        known = chain.from_iterable(combinations(pillars, num) for num in range(shape.pillars + 1))
        if all(pack(room, subset) is not None for subset in known):
            return room


def pack(room: Room, pillars: Collection[Place] = ()) -> Places | None:
    """Return a place for each thing of `room`, off these of its `pillars`; None where the packer finds none."""
    taken: list[Rectangle] = [(*pillar, 1, 1) for pillar in pillars]
    places: Places = {}
    for name, (width, depth) in zip(room.things, room.sizes, strict=True):
        rows = product(range(int(room.depth - depth) + 1), range(int(room.width - width) + 1))
        tried = ((x, y) for y, x in rows)
        free = (
            (x, y)
            for x, y in tried
            if not any(overlaps((x, y, width, depth), other) for other in taken)
            and not off_wall({name: (x, y, width, depth)}, room)
        )
        place = next(free, None)
        if place is None:
            return None
        places[name] = place
        taken.append((*place, width, depth))
    return places


def slip(room: Room, places: Places, rng: Random) -> Places:
    """Return `places` with one thing moved to another place of the room, drawn from `rng`, where it may collide."""
    name = rng.choice(room.things)
    width, depth = int(room.width), int(room.depth)
    others = [place for place in product(range(width), range(depth)) if place != places[name]]
    return {**places, name: rng.choice(others)}


def describe_room(room: Room) -> str:
    """Return `room` in words, without its pillars: ``room 4 3; bed 2 1; desk 1 1 wall``."""
    things = (
        f"{name} {width} {depth}{' wall' if name in room.walls else ''}"
        for name, (width, depth) in zip(room.things, room.sizes, strict=True)
    )
    return f"room {room.width} {room.depth}; {'; '.join(things)}"
