"""Levels of sokoban: how they are drawn in reverse, what a move does, and the shortest solution.

A level begins solved and boxes are pulled off their targets by a random walk, so that the walk backwards is a
solution by pushes. Cells are numbered row by row. Pure functions of a frozen level.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from random import Random

MOVES: Mapping[str, tuple[int, int]] = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}
OPPOSITE: Mapping[str, str] = {"north": "south", "south": "north", "east": "west", "west": "east"}
Steps = tuple[Mapping[str, int], ...]
"""cell → move → the cell it leads to, where there is no wall"""
Position = tuple[int, frozenset[int]]
"""(player, boxes)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A level: ``Level(width=4, height=4, walls=(5,), targets=(10,), player=0, boxes=(9,))``."""

    width: int
    height: int
    walls: tuple[int, ...]
    targets: tuple[int, ...]
    player: int
    boxes: tuple[int, ...]

    @property
    def start(self) -> Position:
        """Where player and boxes are at first."""
        return self.player, frozenset(self.boxes)

    @property
    def steps(self) -> Steps:
        """Where moves lead."""
        return steps_of(self.width, self.height, self.walls)

    def move(self, position: Position, move: str) -> Position | None:
        """Return what `move` leads to, None when a wall or a box that cannot be pushed is in the way."""
        player, boxes = position
        steps = self.steps
        ahead = steps[player].get(move)
        if ahead is None or ahead not in boxes:
            return None if ahead is None else (ahead, boxes)
        beyond = steps[ahead].get(move)
        if beyond is None or beyond in boxes:
            return None
        return ahead, boxes - {ahead} | {beyond}

    def place(self, cell: int) -> tuple[int, int]:
        """Return column and row of `cell`, from 1."""
        return cell % self.width + 1, cell // self.width + 1

    def distance(self, boxes: frozenset[int]) -> int:
        """Return the sum of the ways from `boxes` to targets of their own, walls and other boxes left out."""
        ways = [[self._way(box, target) for target in self.targets] for box in sorted(boxes)]
        return min(
            sum(row[place] for row, place in zip(ways, order, strict=True))
            for order in permutations(range(len(self.targets)))
        )

    def _way(self, one: int, other: int) -> int:
        """Return the number of moves between two cells of an empty room."""
        (x, y), (u, v) = self.place(one), self.place(other)
        return abs(x - u) + abs(y - v)


@lru_cache(maxsize=4096)
def steps_of(width: int, height: int, walls: tuple[int, ...]) -> Steps:
    """Return where moves lead in a room of `width` by `height` cells with `walls` in it."""
    steps: list[Mapping[str, int]] = []
    for cell in range(width * height):
        x, y = cell % width, cell // width
        leads = {
            move: (y + dy) * width + x + dx
            for move, (dx, dy) in MOVES.items()
            if 0 <= x + dx < width and 0 <= y + dy < height
        }
        steps.append({move: to for move, to in leads.items() if to not in walls and cell not in walls})
    return tuple(steps)


def draw_level(size: tuple[int, int], num_boxes: int, num_walls: int, scramble: int, rng: Random) -> Level:
    """Return a level of `size` in which `scramble` moves backwards led from the targets to the start.

    No box starts on a target.
    """
    width, height = size
    while True:
        cells = rng.sample(range(width * height), num_walls + num_boxes + 1)
        walls = tuple(sorted(cells[:num_walls]))
        targets, player = frozenset(cells[num_walls:-1]), cells[-1]
        player, boxes = _scramble(steps_of(width, height, walls), player, targets, scramble, rng)
        if not boxes & targets:
            return Level(
                width=width,
                height=height,
                walls=walls,
                targets=tuple(sorted(targets)),
                player=player,
                boxes=tuple(sorted(boxes)),
            )


def _scramble(steps: Steps, player: int, boxes: frozenset[int], count: int, rng: Random) -> Position:
    """Return where a random walk backwards of `count` moves leads; a box behind the player mostly comes along."""
    for _ in range(count):
        open_moves = [move for move, to in steps[player].items() if to not in boxes]
        if not open_moves:
            break
        move = rng.choice(open_moves)
        behind = steps[player].get(OPPOSITE[move])
        if behind in boxes and rng.random() < 0.8:
            boxes = boxes - {behind} | {player}
        player = steps[player][move]
    return player, boxes


@lru_cache(maxsize=4096)
def push_distances(
    width: int, height: int, walls: tuple[int, ...], targets: tuple[int, ...]
) -> Mapping[int, int]:
    """Return how many pushes a box alone needs from each cell to the nearest target; dead cells are missing."""
    steps = steps_of(width, height, walls)
    found = dict.fromkeys(targets, 0)
    queue = list(targets)
    for cell in queue:
        for move, to in steps[cell].items():
            # A box comes from `to` when the player can stand beyond it.
            if to not in found and move in steps[to]:
                found[to] = found[cell] + 1
                queue.append(to)
    return found


def solve(level: Level, position: Position) -> tuple[str, ...] | None:
    """Return a shortest sequence of moves from `position` to all boxes on targets, None when there is none.

    A* over positions; pushes that each box needs are a bound of the moves that are left.
    """
    pushes = push_distances(level.width, level.height, level.walls, level.targets)
    targets = frozenset(level.targets)
    if any(box not in pushes for box in position[1]):
        return None
    came: dict[Position, tuple[Position, str] | None] = {position: None}
    length = {position: 0}
    heap: list[tuple[int, int, Position]] = [(sum(pushes[box] for box in position[1]), 0, position)]
    count = 0
    while heap:
        _, _, here = heapq.heappop(heap)
        if here[1] == targets:
            return _way_to(here, came)
        for move in MOVES:
            there = level.move(here, move)
            if there is None or length.get(there, 1 << 30) <= length[here] + 1:
                continue
            if there[1] is not here[1] and any(box not in pushes for box in there[1]):
                continue
            length[there], came[there] = length[here] + 1, (here, move)
            count += 1
            # Among equals the deepest first; the count keeps positions from being compared.
            bound = length[there] + sum(pushes[box] for box in there[1])
            heapq.heappush(heap, (bound, -count, there))
    return None


def _way_to(end: Position, came: Mapping[Position, tuple[Position, str] | None]) -> tuple[str, ...]:
    """Return the moves that led to `end`."""
    moves: list[str] = []
    step = came[end]
    while step is not None:
        moves.append(step[1])
        step = came[step[0]]
    return tuple(reversed(moves))
