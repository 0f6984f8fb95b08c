"""Crafter (arXiv 2109.06780; package crafter) told in words: unlock one of its 22 achievements, or as many as can be.

World, creatures, rewards and ends are the package's own but for one thing: the package walks through creatures in the
order of their memory addresses, so that equal seeds soon differ. Here they are walked through in the order of their
birth. Equal seeds and equal actions are the same game in every process.
"""

import copy
import functools
import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from quintain.adapters.crafter.expert import NoWayError, next_action
from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, StepResult, Task

FEATURE = "the environment crafter"
SEED_MASK = (1 << 31) - 1
SCORE = "score"
"""The goal of the package itself: as many achievements as can be."""
UNSOLVED = frozenset({"eat_plant", SCORE})
"""Goals without an expert."""
NUM_KEPT = 64
"""Lands kept as they were made, which takes a second or more."""
ACROSS, DOWN = 4, 3
"""Cells that are seen to each side, as in the package's picture."""
SMALLEST, LARGEST = 16, 64
GROUND = frozenset({"grass", "sand", "path"})
"""Told only where the player faces it."""
NEEDS = ("health", "food", "drink", "energy")
DARK = 0.5


class Crafter(Environment):
    """Live in a land of grass, trees, water and caves. You see what is nearest of each kind. One action per turn, such
    as move left, do (take, drink, eat or hit what you face), place table, make wood pickaxe, sleep or noop."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})

    def __new__(cls, goal: str = "collect_drink", **_options: Any) -> Self:
        """Return a game with an expert where the goal has one."""
        is_solved = cls is Crafter and goal not in UNSOLVED
        return super().__new__(cast("type[Self]", Solved) if is_solved else cls)

    def __init__(  # pyright: ignore[reportInconsistentConstructor]
        self, goal: str = "collect_drink", *, size: int = 64, max_turns: int = 0
    ) -> None:
        """Play for `goal`: an achievement such as ``make_wood_pickaxe``, or ``score``.

        An achievement ends the episode with reward 1, death with 0. ``score`` pays as the package does: 1 for each
        achievement and a tenth of each change of health, until death or its 10,000th turn. `max_turns` cuts earlier
        (0: 300 turns for an achievement). The land has `size` by `size` cells, the package's 64 or fewer.

        Raises:
            MissingExtra: crafter is not installed.
            UsageError: there is no such goal, or a size or limit that does not fit.
        """
        package = extra_module("crafter", package="crafter", extra="crafter", feature=FEATURE)
        self._rules: Any = package.constants
        goals = [SCORE, *self._rules.achievements]
        if goal not in goals:
            raise UsageError(f"goal of crafter: got {goal!r}; {suggestion(goal, goals)}")
        if max_turns < 0 or not SMALLEST <= size <= LARGEST:
            raise UsageError(
                f"crafter: got size={size}, max_turns={max_turns}; give a size from {SMALLEST} to {LARGEST}, and a "
                "number of turns, or 0"
            )
        self.name = f"crafter/{goal}"
        self._goal = goal
        self.max_turns = max_turns or (10_000 if goal == SCORE else 300)
        if goal == SCORE:
            self.return_range = (-math.inf, math.inf)
        self._names = {name.replace("_", " "): n for n, name in enumerate(self._rules.actions)}
        self._size = size
        self._game: Any = None

    def reset(self, task: Task) -> str:
        """Make the land of the task's seed."""
        self._game = _copy(_start(self._size, task.seed & SEED_MASK))
        goal = (
            "Goal: as many achievements as you can." if self._goal == SCORE else f"Goal: {_say(self._goal)}."
        )
        return f"{goal}\n{self._show()}"

    def step(self, action: Action) -> StepResult:
        """Take the action that `action` names; anything else changes nothing."""
        number = self._names.get(" ".join(action.text.lower().split())) if action.error is None else None
        if number is None:
            said = action.error or f"unknown action; say one of {', '.join(self._names)}"
            return StepResult(observation=f"Error: {said}\n{self._show()}", is_valid=False)
        _, reward, is_done, facts = self._game.step(number)
        is_dead = not facts["discount"]
        if self._goal == SCORE:
            return StepResult(
                observation=self._show(),
                reward=float(reward),
                is_terminated=is_dead,
                is_truncated=bool(is_done) and not is_dead,
            )
        has_won = facts["achievements"][self._goal] > 0
        return StepResult(
            observation=self._show(),
            reward=float(has_won),
            is_terminated=has_won or is_dead,
            is_truncated=bool(is_done) and not is_dead and not has_won,
            is_success=has_won if has_won or is_dead else None,
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return the 17 actions; the package accepts each of them in every state."""
        return tuple(self._names)

    def achievements(self) -> Mapping[str, int]:
        """Return how often each achievement was unlocked in this episode."""
        return dict(self._game._player.achievements)

    def snapshot(self) -> Any:
        """Return a deep copy of the game."""
        return _copy(self._game)

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._game = _copy(state)

    def _show(self) -> str:
        """Return what is faced, what is nearest of each kind, and how the player is."""
        player, world = self._game._player, self._game._world
        near = ", ".join(f"{name} {_place(x, y)}" for name, (x, y) in nearest(world, player.pos).items())
        carried = [f"{_say(name)} {count}" for name, count in player.inventory.items() if count]
        state = "asleep. " if player.sleeping else ""
        dark = "dark. " if world.daylight < DARK else ""
        faced = name_of(*world[player.pos + player.facing])
        return f"{state}{dark}facing {faced}. near: {near or 'nothing'}. {', '.join(carried)}."


class Solved(Crafter):
    """A goal with an expert."""

    is_variant = True

    def expert_action(self) -> Action:
        """Return the next action of a planner that knows the whole land.

        Raises:
            EnvironmentFault: the land lacks what the goal needs.
        """
        try:
            return Action(text=next_action(self._game, self._rules, self._goal).replace("_", " "))
        except NoWayError as error:
            raise EnvironmentFault(
                f"expert of {self.name} has no action: got a land without {error}; skip its demonstration"
            ) from error


def name_of(material: str | None, thing: Any) -> str:
    """Return what a cell of `material` with the object `thing` is called."""
    if thing is None:
        return material or "edge"
    kind = type(thing).__name__.lower()
    return "ripe plant" if kind == "plant" and thing.ripe else kind


def nearest(world: Any, place: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Return name → (cells to the right, cells down) of what is in view, the nearest of each; nearest first."""
    cells = [(x, y) for y in range(-DOWN, DOWN + 1) for x in range(-ACROSS, ACROSS + 1) if x or y]
    found: dict[str, tuple[int, int]] = {}
    for x, y in sorted(cells, key=lambda cell: abs(cell[0]) + abs(cell[1])):
        name = name_of(*world[place[0] + x, place[1] + y])
        if name not in GROUND:
            found.setdefault(name, (x, y))
    return found


def _place(right: int, down: int) -> str:
    """Return a relative place in words: ``2 up 1 left``."""
    parts = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
    if right:
        parts.append(f"{abs(right)} {'right' if right > 0 else 'left'}")
    return " ".join(parts)


def _say(name: str) -> str:
    """Return the package's `name` as words."""
    return name.replace("_", " ")


@functools.lru_cache(maxsize=NUM_KEPT)
def _start(size: int, seed: int) -> Any:
    """Return the game of `seed` at its start, which must not be stepped."""
    game = _order_creatures()(area=(size, size), seed=seed)
    game.reset()
    return game


@functools.cache
def _order_creatures() -> Any:
    """Return the package's environment with creatures in the order of their birth."""
    module: Any = importlib.import_module("crafter.env")

    class Ordered(module.Env):
        """The package's environment."""

        def _balance_chunk(self, chunk: object, objs: Any) -> None:
            """Balance the creatures of `chunk`, which the package keeps in a set."""
            numbers = self._world._obj_map
            born = sorted(objs, key=lambda creature: int(numbers[tuple(creature.pos)]))
            super()._balance_chunk(chunk, born)

    return Ordered


def _copy(game: Any) -> Any:
    """Return a deep copy of `game` that shares its pictures."""
    return copy.deepcopy(game, {id(game._textures): game._textures})
