"""Minigrid's levels and its bot, loaded without the picture that minigrid draws of each state.

A level is the package's own class with two methods replaced: the observation (we read the cells instead) and
the reachability test of the generator (the same answer, faster). The generator's chatter goes nowhere.
"""

import copy
import functools
import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

from quintain.adapters.babyai.view import Cell
from quintain.errors import MissingExtra, UsageError, suggestion

GENERATOR = "minigrid.envs.babyai.core.roomgrid_level"
MAX_SEARCHES = 100
"""Searches of the bot for one action; where it finds one it takes a handful."""
NUM_KEPT = 128
"""Levels kept as they were generated."""
SHARED = ("action_space", "observation_space", "room_grid", "locked_room", "_np_random", "spec", "actions")
"""Parts of a level that no step changes."""


class Instruction(Protocol):
    """A mission's checker; compound ones hold two others."""


class Grid(Protocol):
    """The cells of a level, row by row."""

    width: int
    grid: list[Cell | None]


class Level(Protocol):
    """A level of minigrid, as far as it is used here."""

    grid: Grid
    mission: str
    agent_pos: tuple[int, int]
    agent_dir: int
    carrying: Cell | None
    max_steps: int
    instrs: Instruction
    action_space: object
    observation_space: object

    def reset(self, *, seed: int) -> object:
        """Generate the level of `seed`."""
        ...

    def step(self, action: int) -> tuple[object, float, bool, bool, object]:
        """Act; returns observation, reward, is_terminated, is_truncated, information."""
        ...


class Bot(Protocol):
    """The package's expert."""

    def replan(self, action_taken: int | None = None) -> int:
        """Return the next action, told which one was taken last."""
        ...


def start_level(name: str, seed: int) -> Level:
    """Return level `name` of minigrid's BabyAI family, such as ``GoToLocal``, at the start of episode `seed`.

    Raises:
        MissingExtra: minigrid is not installed.
        UsageError: there is no such level.
    """
    return copy_level(_generate(name, seed))[0]


def copy_level(level: Level, bot: Bot | None = None) -> tuple[Level, Bot | None]:
    """Return an independent copy of `level` and of the bot that plays it.

    What no step changes is shared: spaces, rooms, walls and the generator's random numbers, which no
    level draws from once it is made.
    """
    twin = object.__new__(type(level))
    grid = object.__new__(type(level.grid))
    memo: dict[int, object] = {id(level): twin, id(level.grid): grid}
    facts = vars(level)
    memo.update((id(facts[name]), facts[name]) for name in SHARED if name in facts)
    vars(grid).update(vars(level.grid))
    grid.grid = [_twin(cell, memo) for cell in level.grid.grid]
    vars(twin).update(facts)
    twin.grid = grid
    twin.carrying = _twin(level.carrying, memo)
    twin.instrs = copy.deepcopy(level.instrs, memo)
    return twin, copy.deepcopy(bot, memo)


def _twin(cell: Cell | None, memo: dict[int, object]) -> Cell | None:
    """Return a copy of `cell` and of what it contains; walls stand for themselves."""
    if cell is None or cell.type == "wall":
        return cell
    if id(cell) not in memo:
        twin = object.__new__(type(cell))
        memo[id(cell)] = twin
        facts = vars(cell)
        vars(twin).update(facts)
        if facts.get("contains") is not None:
            vars(twin)["contains"] = _twin(facts["contains"], memo)
    return cast(Cell, memo[id(cell)])


@functools.lru_cache(maxsize=NUM_KEPT)
def _generate(name: str, seed: int) -> Level:
    """Return the level of `seed`, which must not be stepped.

    A group of episodes starts from the same level several times; a copy takes a fraction of generating it.
    """
    level = copy_level(_template(name))[0]
    level.reset(seed=seed)
    return level


@functools.cache
def _template(name: str) -> Level:
    """Return a level `name` that has been generated once."""
    levels = level_ids()
    if name not in levels:
        raise UsageError(f"BabyAI level: got {name!r}; {suggestion(name, levels)}")
    from gymnasium.envs.registration import load_env_creator, spec

    found = spec(levels[name])
    assert found.entry_point is not None
    base = load_env_creator(found.entry_point) if isinstance(found.entry_point, str) else found.entry_point
    level = cast(Level, _quick(cast(type, base))(**found.kwargs))
    level.reset(seed=0)
    return level


def make_bot(level: Level) -> Bot:
    """Return the package's bot for `level`, which must have just been reset."""
    return cast(Bot, _bound_bot()(level))


@functools.cache
def _bound_bot() -> Any:
    """Return the package's bot, which gives up where it would replan for ever.

    In some states of ``Unlock`` and ``UnlockToUnlock`` two of its subgoals bring each other back.
    """
    package: Any = importlib.import_module("minigrid.utils.baby_ai_bot")

    class Bounded(package.BabyAIBot):
        """The package's bot."""

        num_searches = 0

        def replan(self, action_taken: int | None = None) -> Any:
            """Return the next action."""
            self.num_searches = 0
            return super().replan(action_taken)

        def _shortest_path(self, *arguments: Any, **options: Any) -> Any:
            """Search a way, a bounded number of times for an action."""
            self.num_searches += 1
            if self.num_searches > MAX_SEARCHES:
                raise RecursionError(f"{MAX_SEARCHES} searches for a way for one action")
            return super()._shortest_path(*arguments, **options)

    return Bounded


@functools.cache
def level_ids() -> Mapping[str, str]:
    """Return the levels by name: ``GoToLocal`` → ``BabyAI-GoToLocal-v0``.

    Raises:
        MissingExtra: minigrid is not installed.
    """
    try:
        generator = importlib.import_module(GENERATOR)
    except ModuleNotFoundError as error:
        raise MissingExtra.for_package("minigrid", "minigrid", "the environment babyai") from error
    # Shadows the builtin in that one module: "Sampling rejected" is printed at about every second reset.
    vars(generator)["print"] = _say_nothing
    from gymnasium import registry

    names = (name for name in registry if name.startswith("BabyAI-"))
    return {name.removeprefix("BabyAI-").rpartition("-v")[0]: name for name in names}


def signature(cell: Cell | None) -> tuple[object, ...]:
    """Return what distinguishes `cell`: its type, colour, state and contents."""
    if cell is None:
        return ()
    facts: dict[str, Any] = vars(cell)
    inside = signature(facts.get("contains"))
    return (cell.type, cell.color, facts.get("is_open"), facts.get("is_locked"), inside)


def progress(instruction: Instruction) -> tuple[object, ...]:
    """Return how far a mission's checker is: the parts that are done, and where it looks for objects."""
    facts: dict[str, Any] = vars(instruction)
    parts: list[object] = [str(facts.get("a_done")), str(facts.get("b_done"))]
    for key in ("desc", "desc_move", "desc_fixed"):
        if key in facts:
            parts.append(tuple((int(x), int(y)) for x, y in facts[key].obj_poss))
    for key in ("instr_a", "instr_b"):
        if key in facts:
            parts.append(progress(facts[key]))
    return tuple(parts)


@functools.cache
def _quick(base: type) -> type:
    """Return `base` without the picture."""
    changed: dict[str, object] = {"gen_obs": _no_picture}
    own = importlib.import_module(GENERATOR).RoomGridLevel
    if getattr(base, "check_objs_reachable", None) is own.check_objs_reachable:
        changed["check_objs_reachable"] = _check_reachable
    return type(f"Quick{base.__name__}", (base,), changed)


def _no_picture(level: Level) -> None:
    """Replace ``MiniGridEnv.gen_obs``, which takes ten times as long as the rest of a step."""


def _check_reachable(level: Level, raise_exc: bool = True) -> bool:
    """Replace ``RoomGridLevel.check_objs_reachable``; relies on the wall around every level."""
    cells, width = level.grid.grid, level.grid.width
    x, y = level.agent_pos
    work = [int(y) * width + int(x)]
    reached = set(work)
    while work:
        place = work.pop()
        cell = cells[place]
        if cell is not None and cell.type != "door":
            continue
        for near in (place + 1, place - 1, place + width, place - width):
            if near not in reached:
                reached.add(near)
                work.append(near)
    for place, cell in enumerate(cells):
        if cell is not None and cell.type != "wall" and place not in reached:
            if raise_exc:
                raise importlib.import_module(GENERATOR).RejectSampling(f"unreachable object at {place}")
            return False
    return True


def _say_nothing(*_words: object) -> None:
    """Stand in for `print`."""
