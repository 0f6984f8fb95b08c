"""Minigrid's levels and its bot, loaded without the picture that minigrid draws of each state.

A level is the package's own class with two methods replaced: the observation (we read the cells instead) and
the reachability test of the generator (the same answer, faster). The generator's chatter goes nowhere.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

from quintain.environments.babyai_view import Cell
from quintain.errors import MissingExtra, UsageError, suggestion

GENERATOR = "minigrid.envs.babyai.core.roomgrid_level"


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


def make_level(name: str) -> Level:
    """Return level `name` of minigrid's BabyAI family, such as ``GoToLocal``.

    Raises:
        MissingExtra: minigrid is not installed.
        UsageError: there is no such level.
    """
    levels = level_ids()
    if name not in levels:
        raise UsageError(f"BabyAI level: got {name!r}; {suggestion(name, levels)}")
    from gymnasium.envs.registration import load_env_creator, spec

    found = spec(levels[name])
    assert found.entry_point is not None
    base = load_env_creator(found.entry_point) if isinstance(found.entry_point, str) else found.entry_point
    return cast(Level, _quick(cast(type, base))(**found.kwargs))


def make_bot(level: Level) -> Bot:
    """Return the package's bot for `level`, which must have just been reset."""
    return cast(Bot, importlib.import_module("minigrid.utils.baby_ai_bot").BabyAIBot(level))


@functools.cache
def level_ids() -> Mapping[str, str]:
    """Return the levels by name: ``GoToLocal`` → ``BabyAI-GoToLocal-v0``.

    Raises:
        MissingExtra: minigrid is not installed.
    """
    try:
        generator = importlib.import_module(GENERATOR)
    except ModuleNotFoundError as error:
        raise MissingExtra.named("minigrid", "minigrid", "the environment babyai") from error
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
