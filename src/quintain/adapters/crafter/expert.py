"""An expert of Crafter: works backwards from an achievement to what it needs, and walks the shortest way to that.

It knows the whole land, as the expert of a maze does. It holds no plan: each turn starts from what is the case, so that
a creature in the way or a table that is gone changes nothing but the next step. What is needed for what is read from
the package's own rules.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Cell = tuple[int, int]
MOVES: Mapping[str, Cell] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
NEIGHBOURS = tuple((x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if x or y)
DUG = ("stone", "path")
"""What a tunnel goes through."""
DIGGING, CROWDED = 3, 4
"""What it costs to go through stone, or where somebody stands now."""
FAR = 25
"""A table or furnace that is farther away than this is built anew."""
LOW = {"food": 3, "drink": 3, "energy": 0}
"""What is seen to before the goal when there is no more of it; whoever sleeps in the open is hurt most."""
LIFE = {"food": "eat_cow", "drink": "collect_drink", "energy": "wake_up"}
CREATURES = {"eat_cow": "Cow", "defeat_zombie": "Zombie", "defeat_skeleton": "Skeleton"}


class NoWayError(Exception):
    """The land lacks what is named."""


def next_action(game: Any, rules: Any, goal: str) -> str:
    """Return the package's name of the next action towards the achievement `goal`.

    `game` is the package's environment and `rules` its constants.

    Raises:
        NoWayError: there is no way to it.
    """
    mind = _Mind(game, rules)
    if mind.player.sleeping:
        return "noop"
    threat = mind.beside("Zombie")
    if threat is not None:
        return mind.act_on(threat)
    low = [LIFE[need] for need in LIFE if mind.inventory[need] <= LOW[need]]
    if low and low[0] != goal:
        try:
            return mind.achieve(low[0])
        except NoWayError:
            pass
    return mind.achieve(goal)


class _Mind:
    """What the expert knows in one state."""

    def __init__(self, game: Any, rules: Any) -> None:
        self.world, self.player, self.rules = game._world, game._player, rules
        self.inventory: Mapping[str, int] = self.player.inventory
        self.here: Cell = (int(self.player.pos[0]), int(self.player.pos[1]))
        self.facing: Cell = (int(self.player.facing[0]), int(self.player.facing[1]))
        self.is_digger = self.inventory["wood_pickaxe"] > 0

    def achieve(self, goal: str) -> str:
        """Return the next action towards `goal`."""
        if goal in CREATURES:
            return self.hunt(CREATURES[goal])
        if goal == "wake_up":
            return "sleep" if self.inventory["energy"] < self.rules.items["energy"]["max"] else "noop"
        verb, _, name = goal.partition("_")
        if verb == "collect":
            return self.collect(name)
        return self.place(name) if verb == "place" else self.make(name)

    def collect(self, item: str) -> str:
        """Return the next action towards one more `item`."""
        material = next(name for name, found in self.rules.collect.items() if item in found["receive"])
        for tool in self.rules.collect[material]["require"]:
            if not self.inventory[tool]:
                return self.make(tool)
        if material in self.rules.walkable:
            return self.face("do", (material,))
        return self.reach(self.cells(material), material)

    def make(self, tool: str) -> str:
        """Return the next action towards `tool`."""
        recipe = self.rules.make[tool]
        missing = [station for station in recipe["nearby"] if not self.is_near(station)]
        needed = dict(recipe["uses"])
        for station in missing:
            if not self.close(station):
                for item, count in self.rules.place[station]["uses"].items():
                    needed[item] = needed.get(item, 0) + count
        lacking = self.lacking(needed)
        if lacking:
            return self.collect(lacking)
        for station in missing:
            known = self.close(station)
            kept = [each for each in recipe["nearby"] if each not in missing]
            return known or self.face(f"place_{station}", self.rules.place[station]["where"], kept)
        return f"make_{tool}"

    def place(self, name: str) -> str:
        """Return the next action towards a `name` that is placed."""
        lacking = self.lacking(self.rules.place[name]["uses"])
        return (
            self.collect(lacking) if lacking else self.face(f"place_{name}", self.rules.place[name]["where"])
        )

    def lacking(self, needed: Mapping[str, int]) -> str:
        """Return the first of the `needed` items that there is too little of; what takes a tool comes first."""
        wanting = [item for item, count in needed.items() if self.inventory[item] < count]
        return min(wanting, key=lambda item: item in ("wood", "sapling"), default="")

    def hunt(self, kind: str) -> str:
        """Return the next action towards the nearest creature of `kind`; where there is none, wait for one."""
        found = [self.cell(thing) for thing in self.world.objects if type(thing).__name__ == kind]
        try:
            return self.reach(found, kind.lower())
        except NoWayError:
            if kind == "Skeleton" and not self.is_digger:
                return self.make("wood_pickaxe")
            if kind == "Zombie":
                return "noop"
            raise

    def beside(self, kind: str) -> Cell | None:
        """Return a neighbouring cell with a creature of `kind`."""
        for x, y in MOVES.values():
            place = (self.here[0] + x, self.here[1] + y)
            if type(self.world[place][1]).__name__ == kind:
                return place
        return None

    def act_on(self, place: Cell) -> str:
        """Turn to the neighbouring cell `place`, or use it."""
        way = (place[0] - self.here[0], place[1] - self.here[1])
        return "do" if way == self.facing else f"move_{_name(way)}"

    def is_near(self, station: str) -> bool:
        """Whether `station` is where the package wants it."""
        return station in self.world.nearby(self.player.pos, 1)[0]

    def close(self, station: str) -> str:
        """Return the next step to a `station` that is not far; "" if there is none."""
        around = {(x + i, y + j) for x, y in self.cells(station) for i, j in NEIGHBOURS}
        way = self.way(lambda cell: cell in around, FAR)
        return self.go(way[0]) if way else ""

    def face(self, action: str, materials: Iterable[str], kept: Iterable[str] = ()) -> str:
        """Return `action` if what is faced is one of `materials` and free, else the next move to face such a cell.

        Cells near all stations in `kept` are preferred.
        """
        allowed = tuple(materials)

        def fits(cell: Cell) -> bool:
            material, thing = self.world[cell]
            return material in allowed and thing is None

        def is_ahead(cell: Cell) -> bool:
            return any(fits((cell[0] + x, cell[1] + y)) for x, y in MOVES.values())

        if fits(_sum(self.here, self.facing)):
            return action
        ranked: list[tuple[int, str]] = []
        for name, way in MOVES.items():
            beside = _sum(self.here, way)
            material, thing = self.world[beside]
            walks = material in self.rules.walkable and thing is None
            if fits(beside) and not walks:
                return f"move_{name}"
            if walks and fits(_sum(beside, way)):
                stays = all(station in self.world.nearby(beside, 1)[0] for station in kept)
                ranked.append((0 if stays else 1, f"move_{name}"))
        if ranked:
            return min(ranked)[1]
        way = self.way(lambda cell: cell != self.here and is_ahead(cell))
        if not way:
            raise NoWayError(" or ".join(allowed))
        return self.go(way[0])

    def reach(self, targets: Iterable[Cell], what: str) -> str:
        """Return the next action towards using the nearest of the cells `targets`."""
        goals = set(targets)
        for way in MOVES.values():
            if _sum(self.here, way) in goals:
                return self.act_on(_sum(self.here, way))
        borders = {_sum(cell, way) for cell in goals for way in MOVES.values()}
        way = self.way(lambda cell: cell in borders)
        if not way:
            raise NoWayError(f"a way to {what}")
        return self.go(way[0])

    def go(self, cell: Cell) -> str:
        """Step to the neighbouring `cell`, or dig it, or strike who stands there."""
        material, thing = self.world[cell]
        if thing is not None or material not in self.rules.walkable:
            return self.act_on(cell)
        return f"move_{_name((cell[0] - self.here[0], cell[1] - self.here[1]))}"

    def way(self, is_goal: Callable[[Cell], bool], max_cost: int = 10_000) -> list[Cell]:
        """Return the cells of the cheapest way to a goal other than here, without the first; [] if there is none."""
        best = {self.here: 0}
        came: dict[Cell, Cell] = {}
        queue = [(0, self.here)]
        while queue:
            cost, cell = heapq.heappop(queue)
            if cost > best[cell] or cost > max_cost:
                continue
            if cell != self.here and is_goal(cell):
                way = [cell]
                while came[way[-1]] != self.here:
                    way.append(came[way[-1]])
                return way[::-1]
            for near, price in self.steps(cell):
                if cost + price < best.get(near, 1 << 30):
                    best[near], came[near] = cost + price, cell
                    heapq.heappush(queue, (cost + price, near))
        return []

    def steps(self, cell: Cell) -> Iterator[tuple[Cell, int]]:
        """Yield the neighbours of `cell` that can be entered, with what that costs."""
        for way in MOVES.values():
            near = _sum(cell, way)
            material, thing = self.world[near]
            is_free = material in self.rules.walkable and type(thing).__name__ != "Plant"
            if is_free or (self.is_digger and material in DUG):
                yield near, (1 if is_free else DIGGING) + (CROWDED if thing is not None else 0)

    def cells(self, material: str) -> list[Cell]:
        """Return the cells of `material`."""
        number = self.world._mat_ids[material]
        return [(int(x), int(y)) for x, y in zip(*(self.world._mat_map == number).nonzero(), strict=True)]

    def cell(self, thing: Any) -> Cell:
        """Return where `thing` is."""
        return (int(thing.pos[0]), int(thing.pos[1]))


def _sum(cell: Cell, way: Cell) -> Cell:
    """Return the cell that lies `way` from `cell`."""
    return (cell[0] + way[0], cell[1] + way[1])


def _name(way: Cell) -> str:
    """Return what the move `way` is called."""
    return next(name for name, found in MOVES.items() if found == way)
