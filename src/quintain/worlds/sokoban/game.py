"""Sokoban: push every box onto a target; a box in a corner stays there.

Families it stands for: planning puzzles with dead ends, sokoban and sliding on ice. The expert's way is a shortest
one, found by search. Every level can be solved, because it was made by pulling.
"""

from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, derive_seed
from quintain.worlds.sokoban.level import MOVES, Level, Position, draw_level, solve

LONGEST_SIDE, MAX_BOXES = 8, 4
State = tuple[Level, Position, int, int]


class Sokoban(Environment):
    """Push every box onto a target.

    Act: north, south, east or west.
    """

    name = "sokoban"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "reasoning"})

    def __init__(
        self,
        *,
        size: int = 4,
        boxes: int = 1,
        walls: int = 2,
        scramble: int = 40,
        slip: float = 0.0,
        view: Literal["list", "grid"] = "list",
        reward: Literal["sparse", "dense"] = "sparse",
        noise: int = 0,
    ) -> None:
        """Lay out a room of `size` by `size` cells with `boxes` boxes and `walls` walls.

        The level is `scramble` moves backwards from its solution; no way of the expert is longer. With
        probability `slip` a move goes to one side instead. `reward=dense` pays half for boxes that come nearer
        to targets, and takes it back. `noise` sentences that mean nothing follow every observation.

        Raises:
            UsageError: there is no such level, or hardly any.
        """
        cells = size * size
        if not (2 < size <= LONGEST_SIDE and 0 < boxes <= MAX_BOXES and 0 <= walls <= cells // 4):
            raise UsageError(
                f"sokoban: got size={size}, boxes={boxes}, walls={walls}; give a size from 3 to {LONGEST_SIDE}, 1 "
                f"to {MAX_BOXES} boxes and walls on no more than a quarter of the cells"
            )
        if 4 * boxes >= cells - walls or scramble < 8 * boxes or not 0 <= slip <= 1 or noise < 0:
            raise UsageError(
                f"sokoban: got boxes={boxes}, scramble={scramble}, slip={slip}, noise={noise}; give boxes on less "
                "than a quarter of the floor, 8 moves backwards or more for each, a slip from 0 to 1 and no "
                "negative noise"
            )
        self._shape = ((size, size), boxes, walls, scramble)
        self._slip, self._has_grid, self._noise = slip, view == "grid", noise
        self._is_dense = reward == "dense"
        self.max_turns = min(scramble, 5 * size * boxes) * (1 if slip == 0 else 2)
        if self._is_dense:
            self.return_range = (0.5 * (2 - 2 * size), 1.0)
        self._level = Level(width=3, height=1, walls=(), targets=(2,), player=0, boxes=(1,))
        self._position: Position = self._level.start
        self._seed, self._turn = 0, 0
        self._ways: dict[Position, tuple[str, ...] | None] = {}

    def reset(self, task: Task) -> str:
        """Lay out the level of the task."""
        level = split_draw(task, lambda rng: draw_level(*self._shape, rng))
        self.restore((level, level.start, task.seed, 0))
        return self._view()

    def step(self, action: Action) -> StepResult:
        """Move, pushing a box that is in the way; what cannot be done changes nothing."""
        word = action.text.strip().lower()
        self._turn += 1
        is_legal = (
            action.error is None and word in MOVES and self._level.move(self._position, word) is not None
        )
        if not is_legal:
            said = f"Error: {action.error}" if action.error is not None else "Nothing happens."
            return StepResult(observation=f"{said} {self._view()}", is_success=False, is_valid=False)
        before = self._position
        self._position = self._level.move(before, self._maybe_slip(word)) or before
        is_solved = self.is_solved
        gain = float(is_solved)
        if self._is_dense:
            level = self._level
            nearer = level.distance(before[1]) - level.distance(self._position[1])
            gain = 0.5 * is_solved + 0.5 * nearer / level.distance(frozenset(level.boxes))
        return StepResult(
            observation="Solved." if is_solved else self._view(),
            reward=gain,
            is_terminated=is_solved,
            is_success=is_solved,
        )

    @property
    def is_solved(self) -> bool:
        """Whether every box is on a target."""
        return self._position[1] == frozenset(self._level.targets)

    def distance(self) -> int | None:
        """Return the moves of a shortest solution from here, exactly; None in a dead end."""
        way = self._way()
        return None if way is None else len(way)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the moves that have an effect; all four where the player is walled in."""
        legal = tuple(move for move in MOVES if self._level.move(self._position, move) is not None)
        return legal or tuple(MOVES)

    def expert_action(self) -> Action:
        """Return the next move of a shortest solution; the first legal move in a dead end."""
        way = self._way()
        return Action(text=way[0] if way else self.legal_actions()[0])

    def snapshot(self) -> State:
        """Return the level and where player and boxes are."""
        return self._level, self._position, self._seed, self._turn

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        if state[0] != self._level:
            self._ways = {}
        self._level, self._position, self._seed, self._turn = state

    def state_key(self) -> str:
        """Return where player and boxes are; the turn only where the floor is slippery."""
        player, boxes = self._position
        return repr((player, sorted(boxes), self._turn if self._slip else 0))

    def _way(self) -> tuple[str, ...] | None:
        """Return a shortest solution from here; the rest of one that was found before is not searched again."""
        if self._position not in self._ways:
            way = solve(self._level, self._position)
            self._ways[self._position] = way
            here = self._position
            for count, move in enumerate(way or (), 1):
                there = self._level.move(here, move)
                assert there is not None and way is not None
                here = there
                self._ways[here] = way[count:]
        return self._ways[self._position]

    def _maybe_slip(self, word: str) -> str:
        """Return where the move goes on a slippery floor."""
        if not self._slip or derive_seed("slip", self._seed, self._turn) >= self._slip * 2**63:
            return word
        sides = ("east", "west") if word in ("north", "south") else ("north", "south")
        return sides[derive_seed("side", self._seed, self._turn) % 2]

    def _view(self) -> str:
        """Return what is seen."""
        seen = self._grid() if self._has_grid else self._list()
        return f"{seen}{chatter(self._noise, self._seed, self._turn)}"

    def _list(self) -> str:
        """Return where the player is, and how far from it everything else."""
        level, (player, boxes) = self._level, self._position
        things = [("box", box) for box in sorted(boxes)]
        things += [("target", target) for target in level.targets]
        things += [("wall", wall) for wall in level.walls]
        x, y = level.place(player)
        parts = [f"{name} {_from(x, y, *level.place(cell))}" for name, cell in things]
        return f"at {x}, {y}; {'; '.join(parts)}"

    def _grid(self) -> str:
        """Return the room in the usual signs: # @ $ . and * or + for a box or the player on a target."""
        level, (player, boxes) = self._level, self._position
        edge = "#" * (level.width + 2)
        rows = [edge]
        for y in range(level.height):
            cells = range(y * level.width, (y + 1) * level.width)
            rows.append(f"#{''.join(self._sign(cell, player, boxes) for cell in cells)}#")
        return "\n".join([*rows, edge])

    def _sign(self, cell: int, player: int, boxes: frozenset[int]) -> str:
        """Return the sign of `cell`."""
        if cell in self._level.walls:
            return "#"
        on_floor, on_target = ("@", "+") if cell == player else ("$", "*") if cell in boxes else ("-", ".")
        return on_target if cell in self._level.targets else on_floor


def _from(x: int, y: int, u: int, v: int) -> str:
    """Return how far (u, v) is from (x, y): ``2 north, 1 east``."""
    parts: list[str] = []
    if v != y:
        parts.append(f"{abs(v - y)} {'south' if v > y else 'north'}")
    if u != x:
        parts.append(f"{abs(u - x)} {'east' if u > x else 'west'}")
    return ", ".join(parts) or "here"
