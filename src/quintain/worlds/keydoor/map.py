"""Where things are in a keydoor world: the rooms, what a place is made of, and the shortest way between two.

Rooms of ``length`` by ``height`` cells lie in a row from west to east; column ``length`` of each is the wall
to the next, with one door. x grows to the east, y to the south. Pure functions of a frozen map.
"""

import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
KINDS = ("key", "ball", "box")
MOVES: Mapping[str, tuple[int, int]] = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}
Place = tuple[int, int]
Item = tuple[str, str]
"""(color, kind)"""


@dataclass(frozen=True, slots=True)
class Map:
    """What does not change in an episode.

    Example: ``Map(rooms=2, length=4, height=4, doors=((2, "red"),), flag=(6, 1))`` has a door at (4, 2).
    """

    rooms: int
    length: int
    height: int
    doors: tuple[tuple[int, str], ...]
    """(y, color) of the door between room n and room n + 1"""
    flag: Place

    def room(self, x: int) -> int:
        """Return the room of column `x`; a doorway belongs to the room west of it."""
        return x // (self.length + 1)

    def is_wall_column(self, x: int) -> bool:
        """Whether column `x` is the wall between two rooms."""
        return x % (self.length + 1) == self.length

    def door(self, number: int) -> Place:
        """Return where door `number` is."""
        return number * (self.length + 1) + self.length, self.doors[number][0]

    def is_floor(self, place: Place, num_open: int) -> bool:
        """Whether the agent can stand at `place` when the first `num_open` doors are open."""
        x, y = place
        if not (0 <= y < self.height and 0 <= x < self.rooms * (self.length + 1) - 1):
            return False
        room = self.room(x)
        return not self.is_wall_column(x) or (self.doors[room][0] == y and room < num_open)

    def sees(self, agent: Place, place: Place) -> bool:
        """Whether the agent sees the cell `place`: it is in its room, or on either side of its doorway."""
        x = agent[0]
        rooms = (self.room(x), self.room(x) + 1) if self.is_wall_column(x) else (self.room(x),)
        return self.room(place[0]) in rooms

    def near_doors(self, agent: Place) -> Iterable[int]:
        """Return the doors of the room the agent is in, from west to east."""
        room = self.room(agent[0])
        return (number for number in (room - 1, room) if 0 <= number < self.rooms - 1)


def generate(
    shape: tuple[int, int, int], num_distractors: int, rng: random.Random
) -> tuple[Map, Place, dict[Place, Item]]:
    """Return a map of `shape` (rooms, length, height), where the agent starts, and what lies where.

    The key of a door lies in a room before it; a thing lies alone, away from the start and the flag; no
    distractor is a key that fits.
    """
    rooms, length, height = shape
    colors = rng.sample(COLORS, rooms - 1)
    doors = tuple((rng.randrange(height), color) for color in colors)
    cells = [
        [(room * (length + 1) + x, y) for y in range(height) for x in range(length)] for room in range(rooms)
    ]
    start = rng.choice(cells[0])
    flag = rng.choice([cell for cell in cells[-1] if cell != start])
    free = [[cell for cell in room if cell not in (start, flag)] for room in cells]
    items: dict[Place, Item] = {}

    def put(item: Item, last_room: int) -> None:
        place = rng.choice([cell for room in free[: last_room + 1] for cell in room])
        free[place[0] // (length + 1)].remove(place)
        items[place] = item

    for number, color in enumerate(colors):
        put((color, "key"), number)
    others = [(color, kind) for color in COLORS for kind in KINDS if kind != "key" or color not in colors]
    for _ in range(num_distractors):
        put(rng.choice(others), rooms - 1)
    return Map(rooms, length, height, doors, flag), start, items


def first_move(world: Map, num_open: int, start: Place, goals: Iterable[Place]) -> str | None:
    """Return the first step of a shortest way from `start` to the nearest of `goals`; None without one.

    At a goal already, there is no step to take: None too.
    """
    wanted = set(goals)
    came_by: dict[Place, str] = {start: ""}
    queue = deque([start])
    while queue:
        place = queue.popleft()
        if place in wanted:
            return came_by[place] or None
        for word, (dx, dy) in MOVES.items():
            step = (place[0] + dx, place[1] + dy)
            if step not in came_by and world.is_floor(step, num_open):
                came_by[step] = came_by[place] or word
                queue.append(step)
    return None
