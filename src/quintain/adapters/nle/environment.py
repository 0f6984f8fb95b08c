"""NetHack as text, from the NetHack Learning Environment (arXiv 2006.13760): the screen is the observation.

The package pins a Gymnasium that others cannot live with, so it is best run in a worker:
``worker/nle/NetHackStaircase-v0?python=…``. Rewards and ends are the package's own. On the tasks that end on a
staircase an explorer (`nle_explorer`) is the expert: it finds one often, not always.
"""

from typing import Any, ClassVar, Self, cast

from quintain.adapters.nle.explorer import Explorer
from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.errors import UsageError, suggestion
from quintain.types import Action, StepResult, Task

FEATURE = "the environment nle"
COMMAND = "pip install nle==1.3.0, best in an environment of its own"
SEED_MASK = (1 << 31) - 1
COMPASS = {
    "N": "north",
    "E": "east",
    "S": "south",
    "W": "west",
    "NE": "northeast",
    "SE": "southeast",
    "SW": "southwest",
    "NW": "northwest",
}


class NetHack(Environment):
    """Play NetHack. The screen is a map: @ is you, > a staircase down, < one up, + a door, # a corridor."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})
    return_range = (float("-inf"), float("inf"))

    def __new__(cls, id: str = "NetHackScore-v0", *, max_turns: int = 500) -> Self:
        """Return an environment with an expert where the task is to find a staircase."""
        del max_turns
        is_known = cls is NetHack and id == "NetHackStaircase-v0"
        return super().__new__(cast("type[Self]", Staircase) if is_known else cls)

    def __init__(self, id: str = "NetHackScore-v0", *, max_turns: int = 500) -> None:
        """Play the task `id` of the package, cut after `max_turns`.

        Raises:
            MissingExtra: nle is not installed.
            UsageError: there is no such task.
        """
        extra_module("nle", package="nle", feature=FEATURE, command=COMMAND)
        gymnasium = extra_module("gymnasium", package="nle", feature=FEATURE, command=COMMAND)
        names = [name for name in gymnasium.registry if name.startswith("NetHack")]
        if id not in names:
            raise UsageError(f"task of nle: got {id!r}; {suggestion(id, names)}")
        self.name, self.max_turns = f"nle/{id}", max_turns
        keys = ("tty_chars", "glyphs", "blstats")
        made = gymnasium.make(id, observation_keys=keys, max_episode_steps=max_turns, savedir=None)
        self._env: Any = made.unwrapped
        self._numbers = {action_name(each): number for number, each in enumerate(self._env.actions)}

    def reset(self, task: Task) -> str:
        """Start the game of the task's seeds, the same in every process."""
        self._env.seed(task.seed & SEED_MASK, task.rng.getrandbits(31), reseed=False)
        self._seen, _ = self._env.reset()
        return self._screen()

    def step(self, action: Action) -> StepResult:
        """Press the key that `action` names; anything else changes nothing."""
        number = self._numbers.get(action.text.strip().lower()) if action.error is None else None
        if number is None:
            said = action.error or f"unknown action; say one of {', '.join(self._numbers)}"
            return StepResult(observation=f"Error: {said}\n{self._screen()}", is_valid=False)
        self._seen, reward, is_terminated, is_truncated, told = self._env.step(number)
        is_over = bool(is_terminated or is_truncated)
        return StepResult(
            observation=self._screen(),
            reward=float(reward),
            is_terminated=bool(is_terminated),
            is_truncated=bool(is_truncated) and not is_terminated,
            is_success=told["end_status"].name == "TASK_SUCCESSFUL" if is_over else None,
        )

    def close(self) -> None:
        """End the game."""
        self._env.close()

    def instructions(self) -> str:
        """Return what the game is, and the actions."""
        return f"{super().instructions()} Act: {', '.join(self._numbers)}."

    def legal_actions(self) -> tuple[str, ...]:
        """Return the names of the actions; the game accepts each at any time."""
        return tuple(self._numbers)

    def _screen(self) -> str:
        """Return the screen without what is empty."""
        rows = [bytes(row).decode("latin-1").rstrip() for row in self._seen["tty_chars"]]
        return "\n".join(rows).strip("\n")


class Staircase(NetHack):
    """Find a staircase down and stand on it."""

    return_range = (-100.0, 1.0)

    def reset(self, task: Task) -> str:
        """Start a game, and with it the explorer's knowledge."""
        self._explorer = Explorer()
        return super().reset(task)

    def instructions(self) -> str:
        """Return what the task is, what the game is, and the actions."""
        game = (NetHack.__doc__ or "").strip()
        return f"Find a staircase down and stand on it. {game} Act: {', '.join(self._numbers)}."

    def expert_action(self) -> Action:
        """Return the explorer's next action."""
        x, y = (int(each) for each in self._seen["blstats"][:2])
        screen = self._screen()
        return Action(text=self._explorer.next(self._seen["glyphs"].tolist(), (y, x), screen))


def action_name(action: Any) -> str:
    """Return the name of the key `action`: ``"north"``, ``"far north"``, ``"eat"``."""
    kind = type(action).__name__
    direction = COMPASS.get(action.name) or str(action.name).lower()
    return f"far {direction}" if kind == "CompassDirectionLonger" else direction
