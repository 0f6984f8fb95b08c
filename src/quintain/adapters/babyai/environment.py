"""BabyAI's levels (arXiv 1810.08272; package minigrid) as text: a word per action, a short line per view.

The world, its missions and its expert bot are the package's own. Success is the package's, ``terminated`` with a
reward above zero.
"""

import hashlib
from typing import ClassVar, Literal

from quintain.adapters.babyai.level import Bot, Level, copy_level, make_bot, progress, signature, start_level
from quintain.adapters.babyai.view import describe, name
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import Action, StepResult, Task

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
"""The package's actions, in its numbering."""
NUMBERS = {word: number for number, word in enumerate(ACTIONS)}
BOT_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
Advice = int | EnvironmentFault | None
State = tuple[Level, Bot | None, Advice, tuple[int, ...], int]


class BabyAI(Environment):
    """Do what the first line asks. Act with one word: left, right, forward, pickup, drop, toggle or done."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning", "perception"})

    def __init__(
        self,
        level: str = "GoToRedBallNoDists",
        *,
        reward: Literal["binary", "package"] = "binary",
        repeat_mission: bool = False,
        max_turns: int = 0,
    ) -> None:
        """Load `level`, such as ``GoToRedBallNoDists`` or ``GoToLocal``.

        `reward` is 1 on success, or the package's own (from 1 down to 0.1, less the longer it took). With
        `repeat_mission` every observation starts with the mission, not only the first. `max_turns` lowers the
        package's own limit, which depends on the mission.

        Raises:
            MissingExtra: minigrid is not installed.
            UsageError: there is no such level, reward or limit.
        """
        if reward not in ("binary", "package"):
            raise UsageError(f"reward of babyai: got {reward!r}; choose 'binary' or 'package'")
        if max_turns < 0:
            raise UsageError(
                f"max_turns of babyai: got {max_turns}; give a number of turns, or 0 for the package's"
            )
        self.name = f"babyai/{level}"
        self._reward = reward
        self._repeat_mission = repeat_mission
        self._limit = max_turns
        self._level_name = level
        self._start(0)

    def reset(self, task: Task) -> str:
        """Generate the level of the task's seed; the first observation starts with the mission."""
        self._start(task.seed)
        return f"{self._level.mission}\n{self._view()}"

    def step(self, action: Action) -> StepResult:
        """Carry out one of the seven words; anything else changes nothing."""
        number = NUMBERS.get(action.text.strip().lower()) if action.error is None else None
        if number is None:
            said = action.error or f"unknown action; say one of {' '.join(ACTIONS)}"
            return StepResult(observation=f"Error: {said}\n{self._show()}", is_valid=False)
        reward, is_terminated, is_truncated = self._act(number)
        is_success = is_terminated and reward > 0
        return StepResult(
            observation=self._show(),
            reward=float(is_success) if self._reward == "binary" else reward,
            is_terminated=is_terminated,
            is_truncated=is_truncated and not is_terminated,
            is_success=is_success if is_terminated or is_truncated else None,
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return the seven actions; the package accepts each of them in every state."""
        return ACTIONS

    def expert_action(self) -> Action:
        """Return the action of the package's bot, which has been told of every action so far.

        Raises:
            EnvironmentFault: the bot gave up (it cannot solve every level, nor every state).
        """
        if self._bot is None:
            self._follow()
        advice = self._consult()
        if isinstance(advice, EnvironmentFault):
            raise advice
        return Action(text=ACTIONS[advice])

    def state_key(self) -> str:
        """Return a digest of the agent, what it carries, every object and the mission's progress."""
        level = self._level
        x, y = level.agent_pos
        cells = tuple(
            (place, signature(cell))
            for place, cell in enumerate(level.grid.grid)
            if cell is not None and cell.type != "wall"
        )
        agent = (int(x), int(y), int(level.agent_dir), signature(level.carrying))
        state = repr((agent, cells, progress(level.instrs)))
        return hashlib.blake2b(state.encode(), digest_size=16).hexdigest()

    def snapshot(self) -> State:
        """Return a deep copy of the level and its bot."""
        level, bot = copy_level(self._level, self._bot)
        return level, bot, self._advice, tuple(self._taken), self._seed

    def restore(self, state: State) -> None:
        """Continue from a snapshot of any instance of the same level."""
        level, bot, self._advice, taken, self._seed = state
        self._level, self._bot = copy_level(level, bot)
        self._taken = list(taken)
        self._set_limit()

    def _start(self, seed: int) -> None:
        """Generate the level of `seed` and forget the episode before."""
        self._level = start_level(self._level_name, seed)
        self._seed = seed
        self._taken: list[int] = []
        self._bot: Bot | None = None
        self._advice: Advice = None
        self._set_limit()

    def _set_limit(self) -> None:
        """Take the turn limit over from the level, or from the option where that is lower."""
        longest = int(self._level.max_steps)
        self.max_turns = min(self._limit or longest, longest)

    def _act(self, number: int) -> tuple[float, bool, bool]:
        """Take action `number` and return reward, is_terminated and is_truncated."""
        if self._bot is not None:
            self._consult()
        _, reward, is_terminated, is_truncated, _ = self._level.step(number)
        self._taken.append(number)
        if not isinstance(self._advice, EnvironmentFault):
            self._advice = None
        return float(reward), bool(is_terminated), bool(is_truncated)

    def _follow(self) -> None:
        """Start the bot; it must see an episode from its start, so what was done is done again."""
        taken = self._taken
        self._start(self._seed)
        self._bot = make_bot(self._level)
        for number in taken:
            self._act(number)

    def _consult(self) -> int | EnvironmentFault:
        """Return the bot's advice, asking it once per state."""
        if self._advice is None:
            assert self._bot is not None
            try:
                self._advice = int(self._bot.replan(self._taken[-1] if self._taken else None))
            except (*BOT_ERRORS, _open_box_error()) as error:
                self._advice = _gave_up(self.name, error)
        return self._advice

    def _show(self) -> str:
        """Return an observation after the first."""
        return f"{self._level.mission}\n{self._view()}" if self._repeat_mission else self._view()

    def _view(self) -> str:
        """Return what is carried and seen."""
        level = self._level
        x, y = level.agent_pos
        seen = describe(level.grid.grid, level.grid.width, (int(x), int(y), int(level.agent_dir)))
        return f"carrying {name(level.carrying)}, {seen}" if level.carrying is not None else seen


def _open_box_error() -> type[Exception]:
    """Return the exception the bot raises after a box was opened."""
    from minigrid.utils.baby_ai_bot import DisappearedBoxError

    return DisappearedBoxError


def _gave_up(who: str, error: Exception) -> EnvironmentFault:
    """Return the fault for a bot that stopped with `error`."""
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    return EnvironmentFault(f"expert of {who} has no action: got {reason}; skip this episode's demonstration")
