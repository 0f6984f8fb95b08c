"""Chores in ALFWorld's engine (arXiv 2010.03768; packages alfworld and textworld) with problems written here.

Domain, planner, texts and commands are ALFWorld's own; the rooms are not its games, which have to be downloaded. What
is reached here is no result on ALFWorld's 134 or 140 games, and is never called one.
"""

import importlib.util
import threading
from pathlib import Path
from typing import Any, ClassVar

from quintain.adapters.alfworld.problem import CHORES, Room, domain_problem, draw_room
from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.errors import EnvironmentFault, MissingExtra, UsageError, suggestion
from quintain.types import Action, StepResult, Task, derive_seed

FEATURE = "the environment alfworld-engine"
LONGEST_COMMAND = 100
MAX_OBJECTS = 20
_translating = threading.Lock()
"""The engine's translator takes standard output for itself while it works."""


class AlfworldEngine(Environment):
    """Do the chore in the room. Write one command per turn, such as: go to fridge 1, open fridge 1, take apple 1 from
    fridge 1, clean apple 1 with sinkbasin 1, heat, cool, use desklamp 1, move apple 1 to shelf 1."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})

    def __init__(self, chore: str = "put", *, objects: int = 6, max_turns: int = 50) -> None:
        """Prepare rooms for `chore`, one of `CHORES`, with `objects` things in each besides those that it needs.

        Raises:
            MissingExtra: alfworld or its planner is not installed.
            UsageError: there is no such chore, or an option is out of range.
        """
        if chore not in CHORES:
            raise UsageError(f"chore of alfworld-engine: got {chore!r}; {suggestion(chore, CHORES)}")
        if not 0 <= objects <= MAX_OBJECTS or max_turns < 1:
            raise UsageError(
                f"alfworld-engine: got objects={objects}, max_turns={max_turns}; give 0 to {MAX_OBJECTS}, "
                "and 1 or more"
            )
        self._package: Any = extra_module("textworld", package="textworld", extra="alfworld", feature=FEATURE)
        extra_module("fast_downward", package="fast-downward-textworld", extra="alfworld", feature=FEATURE)
        self._data = _data()
        self.name, self.max_turns = f"alfworld-engine/{chore}", max_turns
        self._chore, self._objects = chore, objects
        self._env: Any = None
        self._now: Any = None

    def reset(self, task: Task) -> str:
        """Furnish the room of the task; equal rooms are in one split only."""
        room: Room = split_draw(task, lambda rng: draw_room(self._chore, self._objects, rng))
        domain, grammar = (self._data / "alfred.pddl", self._data / "alfred.twl2")
        with _translating:
            if self._env is None:
                engine = extra_module(
                    "textworld.envs.pddl", package="textworld", extra="alfworld", feature=FEATURE
                )
                infos = self._package.EnvInfos(admissible_commands=True, won=True, facts=True, feedback=True)
                # Each instance loads the planner's library anew: one is used for all episodes.
                self._env = engine.PddlEnv(infos)
            self._env.load({
                "pddl_domain": domain.read_text(encoding="utf-8"),
                "grammar": grammar.read_text(encoding="utf-8").replace("UNKNOWN GOAL", room.chore),
                "pddl_problem": domain_problem(room),
            })  # fmt: skip
            for entity in self._env._entity_infos.values():
                entity.name = entity.id.replace("_", " ")
            self._now = self._env.reset()
        return _clean(self._now.feedback)

    def step(self, action: Action) -> StepResult:
        """Give the command to the engine; one that does not apply changes nothing."""
        command = " ".join(action.text[:LONGEST_COMMAND].split())
        if action.error is not None or not command:
            return StepResult(observation=f"Error: {action.error or 'write a command'}", is_valid=False)
        is_valid = command in self._now.admissible_commands
        self._now, _, _ = self._env.step(command)
        has_won = bool(self._now.won)
        return StepResult(
            observation=_clean(self._now.feedback),
            reward=float(has_won),
            is_terminated=has_won,
            is_success=True if has_won else None,
            is_valid=is_valid,
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return the commands that the engine lists in this state."""
        return tuple(dict.fromkeys(self._now.admissible_commands))

    def expert_action(self) -> Action:
        """Return the first command of the plan that the engine's planner finds from here.

        Raises:
            EnvironmentFault: it finds none.
        """
        commands = self._env._pddl_state.replan(self._env._entity_infos)
        if not commands:
            raise EnvironmentFault(
                f"expert of {self.name} has no action: got no plan from the planner; skip it"
            )
        return Action(text=commands[0])

    def state_key(self) -> str:
        """Return a digest of all facts that hold."""
        return str(derive_seed(*sorted(map(str, self._now.facts))))

    def close(self) -> None:
        """Forget the game."""
        self._env = self._now = None


def _clean(feedback: str) -> str:
    """Return the engine's text without its greeting and without empty lines."""
    return "\n".join(line for line in feedback.splitlines() if line.strip() and not line.startswith("-="))


def _data() -> Path:
    """Return the folder with ALFWorld's domain and grammar; the package itself, and what it needs, is not imported."""
    found = importlib.util.find_spec("alfworld")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra.for_package("alfworld", "alfworld", FEATURE)
    return Path(found.submodule_search_locations[0]) / "data"
