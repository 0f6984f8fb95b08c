"""An explorer of one level of NetHack: to the staircase if it is seen, else to the nearest place not looked at.

It reads the map of glyphs (21 × 79), as the package gives it. A place that cannot be entered is left out after the
second try, so that it never tries for ever.
"""

from collections import Counter, deque
from collections.abc import Iterator

Place = tuple[int, int]
"""Row and column."""
MAP = 2359
"""The first glyph of the map's own symbols."""
STONE, WALLS, DOORS, STAIRS_DOWN = 0, range(1, 12), range(12, 17), 24
LAST_OF_MAP = 87
DIRECTIONS: dict[Place, str] = {
    (-1, 0): "north",
    (0, 1): "east",
    (1, 0): "south",
    (0, -1): "west",
    (-1, 1): "northeast",
    (1, 1): "southeast",
    (1, -1): "southwest",
    (-1, -1): "northwest",
}
MAX_TRIES = 2


class Explorer:
    """What is known of a level so far."""

    def __init__(self) -> None:
        self._visits: Counter[Place] = Counter()
        self._tries: Counter[Place] = Counter()
        self._aim: Place | None = None

    def next(self, glyphs: list[list[int]], place: Place, screen: str) -> str:
        """Return the name of the next action of one who stands at `place`."""
        if "--More--" in screen:
            return "more"
        if self._aim is not None:
            self._tries[self._aim] += place != self._aim
        self._visits[place] += 1
        step = self._step(glyphs, place)
        self._aim = None if step is None else (place[0] + step[0], place[1] + step[1])
        return "search" if step is None else DIRECTIONS[step]

    def _step(self, glyphs: list[list[int]], place: Place) -> Place | None:
        """Return the first step of the shortest way to the staircase, else to the best place to look around."""
        first: dict[Place, Place | None] = {place: None}
        queue = deque([place])
        found: list[Place] = []
        while queue:
            here = queue.popleft()
            found.append(here)
            for step in DIRECTIONS:
                there = (here[0] + step[0], here[1] + step[1])
                if there not in first and self._can_go(glyphs, here, there):
                    first[there] = first[here] or step
                    queue.append(there)
        for there in found[1:]:
            if symbol(glyphs, there) == STAIRS_DOWN:
                return first[there]
        for there in found[1:]:
            if not self._visits[there] and any(
                symbol(glyphs, near) == STONE for near in around(glyphs, there)
            ):
                return first[there]
        return self._wander(glyphs, found, first)

    def _wander(
        self, glyphs: list[list[int]], found: list[Place], first: dict[Place, Place | None]
    ) -> Place | None:
        """Return a step to where the least was searched: dead ends of corridors and walls of rooms; None to search."""
        edges = [
            there
            for there in found
            if sum(symbol(glyphs, near) in (STONE, *WALLS) for near in around(glyphs, there)) >= 3
        ]
        best = min(edges, key=lambda there: self._visits[there] // 5, default=found[0])
        return None if best == found[0] or self._visits[found[0]] % 5 else first[best]

    def _can_go(self, glyphs: list[list[int]], here: Place, there: Place) -> bool:
        """Whether one can step from `here` to `there`, as far as is known; doors are not entered aslant."""
        if not (0 <= there[0] < len(glyphs) and 0 <= there[1] < len(glyphs[0])):
            return False
        kind = symbol(glyphs, there)
        if kind == STONE or kind in WALLS or self._tries[there] >= MAX_TRIES:
            return False
        is_aslant = here[0] != there[0] and here[1] != there[1]
        return not (is_aslant and (kind in DOORS or symbol(glyphs, here) in DOORS))


def symbol(glyphs: list[list[int]], place: Place) -> int:
    """Return the symbol of the map at `place`; a thing or a being is -1."""
    number = glyphs[place[0]][place[1]] - MAP
    return number if 0 <= number < LAST_OF_MAP else -1


def around(glyphs: list[list[int]], place: Place) -> Iterator[Place]:
    """Yield the places next to `place` that are on the map."""
    for row, column in DIRECTIONS:
        near = (place[0] + row, place[1] + column)
        if 0 <= near[0] < len(glyphs) and 0 <= near[1] < len(glyphs[0]):
            yield near
