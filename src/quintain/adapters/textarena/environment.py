"""TextArena's games (arXiv 2504.11442; package textarena) as episodes of one, two or more seats.

Rules, texts and rewards are the package's own. It draws from Python's global random numbers, so every call gets those
of its game and puts the others back. A seat reads only what was sent to it.
"""

import copy
import random
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.errors import UsageError, suggestion
from quintain.types import Action, StepResult, Task, derive_seed

LISTED = ("TicTacToe", "KuhnPoker")
"""Families that say before every move which ones there are."""
FULL_MARKS = 1.0
"""Reward of a win, or of a puzzle that is solved; less is paid for a part of it."""
OFFER = re.compile(r"available (?:moves|actions)[^:]*: *(.+)", re.IGNORECASE)
MOVE = re.compile(r"\[[^\]]+\]")
LONGEST_GAME = 100
MAX_PLAYERS = 15
GAME = -1
"""Who sends what is no player's."""
State = tuple[Any, Any, Any, tuple[str, ...], int]
_global_random = threading.Lock()


class TextArena(Environment):
    """Play the game and win."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning", "reasoning"})
    return_range = (float("-inf"), float("inf"))

    def __new__(cls, game: str = "TicTacToe-v0", **_options: Any) -> Self:
        """Return an environment that lists its moves where the game does."""
        is_listed = cls is TextArena and game.startswith(LISTED)
        return super().__new__(cast("type[Self]", Listed) if is_listed else cls)

    def __init__(
        self,
        game: str = "TicTacToe-v0",
        *,
        players: int = 0,
        opponent: Literal["self", "random"] = "self",
        **options: Any,
    ) -> None:
        """Make `game`, such as ``TicTacToe-v0``; `options` go to ``textarena.make``.

        `players` is the number of seats, 0 for the fewest that the game takes. With `opponent=random` the agent
        has one seat, which depends on the task, and the others choose among the moves that the game lists.

        Raises:
            MissingExtra: textarena is not installed.
            UsageError: there is no such game, it does not start here, or an option does not fit.
        """
        if opponent not in ("self", "random"):
            raise UsageError(f"opponent of textarena: got {opponent!r}; choose 'self' or 'random'")
        if opponent == "random" and not game.startswith(LISTED):
            raise UsageError(
                f"opponent of textarena/{game}: got 'random', but the game does not list its moves; choose 'self'"
            )
        self.name = f"textarena/{game}"
        self._registry: Any = _package()
        if game not in self._registry.ENV_REGISTRY:
            near = suggestion(game, [str(name) for name in self._registry.ENV_REGISTRY])
            raise UsageError(
                f"textarena game: got {game!r}; {near if len(near) < 80 else 'see textarena.ENV_REGISTRY'}"
            )
        wrappers = self._registry.ENV_REGISTRY[game].default_wrappers or ()
        self._brackets = any(wrapper.__name__ == "ActionFormattingWrapper" for wrapper in wrappers)
        self._game, self._options, self._opponent = game, options, opponent
        self._dice: tuple[Any, Any] = (random.Random(0).getstate(), np.random.RandomState(0).get_state())
        self._players = self._fewest(players)
        own_limit = self._env.state.max_turns
        # A move that is refused once may be repeated, so there can be twice as many turns as moves.
        self.max_turns = 2 * int(own_limit) if own_limit else LONGEST_GAME

    def reset(self, task: Task) -> str:
        """Start the game of the task's seed."""
        self._agent = (task.seed >> 1) % self._players if self._opponent == "random" else 0
        self._seed, self._moves = task.seed, ()
        self._start(task.seed, self._players)
        told = self._listen()
        return told if self._is_agents_turn() else self._move_opponents(told)[0]

    def seats(self) -> tuple[str, ...]:
        """Return the seats that the agent plays."""
        if self._opponent == "random":
            return (f"Player {self._agent}",)
        return tuple(f"Player {number}" for number in range(self._players))

    def seat(self) -> str:
        """Return the seat that acts next."""
        return f"Player {self._acting}"

    def step(self, action: Action) -> StepResult:
        """Make the move in `action`, and those of the opponents.

        The reward is that of the agent's seat (the first, when it plays all; `rewards` then has every seat's).
        """
        if action.error is not None:
            return StepResult(observation=f"Error: {action.error}", is_valid=False)
        errors = self._env.state.error_count
        is_done = self._play(action.text)
        is_valid = is_done or self._env.state.error_count <= errors
        told = self._listen()
        if not is_done and not self._is_agents_turn():
            told, is_done = self._move_opponents(told)
        if not is_done:
            return StepResult(observation=told, is_valid=is_valid)
        rewards, facts = self._env.close()
        found = {int(seat): float(value) for seat, value in (rewards or {}).items()}
        reason = str(facts.get(self._agent, {}).get("reason", "")) if facts else ""
        reward = found.get(self._agent, 0.0)
        return StepResult(
            observation=reason or told or "The game is over.",
            reward=reward,
            is_terminated=True,
            is_success=reward >= FULL_MARKS,
            rewards={f"Player {seat}": value for seat, value in found.items()}
            if self._opponent == "self"
            else {},
        )

    def snapshot(self) -> State:
        """Return a deep copy of the game, with its random numbers."""
        return copy.deepcopy(self._env), self._dice, (self._acting, self._agent), self._moves, self._seed

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._env = copy.deepcopy(state[0])
        self._dice, (self._acting, self._agent), self._moves, self._seed = state[1:]

    def _is_agents_turn(self) -> bool:
        return self._opponent == "self" or self._acting == self._agent

    def _move_opponents(self, told: str) -> tuple[str, bool]:
        """Let the opponents move until the agent's turn; return what it is told and whether the game is over."""
        is_done = False
        while not is_done and not self._is_agents_turn():
            turn = self._env.state.turn
            rng = random.Random(derive_seed("textarena", self._seed, int(turn), repr(self._moves)))
            is_done = self._play(rng.choice(self._moves))
            told = self._listen()
        return told, is_done

    def _fewest(self, players: int) -> int:
        """Start the game with `players`, or with as few as it takes; return how many."""
        complaint: Exception | None = None
        for count in (players,) if players else range(1, MAX_PLAYERS + 1):
            try:
                self._start(0, count)
                return count
            except (
                SyntaxError,
                ImportError,
                LookupError,
                OSError,
                ValueError,
                TypeError,
                AssertionError,
            ) as error:
                complaint = error
                if not isinstance(error, AssertionError):
                    break
        reason = " ".join(str(complaint).split())[:200]
        raise UsageError(
            f"textarena game: got {self._game!r} with players={players} and {self._options}, which does not start "
            f"here: {reason}; mend it, or choose another game"
        ) from complaint

    def _start(self, seed: int, players: int) -> None:
        """Make the game anew and reset it."""
        with self._drawing():
            random.seed(seed)
            np.random.seed(seed % (1 << 32))
            self._env = self._registry.make(f"{self._game}-raw", **self._options)
            self._env.reset(num_players=players, seed=seed)

    def _play(self, text: str) -> bool:
        """Make the move `text` and return whether the game is over."""
        said = f"[{text.strip()}]" if self._brackets and "[" not in text else text
        with self._drawing():
            is_done, _ = self._env.step(action=said)
        return bool(is_done)

    def _listen(self) -> str:
        """Return what was sent to the seat whose turn it is since it acted last."""
        with self._drawing():
            seat, messages = self._env.get_observation()
        self._acting = int(seat)
        sent = [
            (text if sender == GAME else f"[Player {sender}] {text}").strip()
            for sender, text, _ in messages
            if sender != self._acting
        ]
        told = "\n".join(part for part in sent if part)
        offers = OFFER.findall(told)
        if offers:
            self._moves = tuple(dict.fromkeys(MOVE.findall(offers[-1])))
        return told

    @contextmanager
    def _drawing(self) -> Generator[None]:
        """Put the game's random numbers in the place of the global ones, and back."""
        with _global_random:
            others = random.getstate(), np.random.get_state()
            random.setstate(self._dice[0])
            np.random.set_state(self._dice[1])
            try:
                yield
            finally:
                self._dice = random.getstate(), np.random.get_state()
                random.setstate(others[0])
                np.random.set_state(others[1])


class Listed(TextArena):
    """A game that says which moves there are."""

    is_variant = True

    def legal_actions(self) -> tuple[str, ...]:
        """Return the moves that the game offered last."""
        return self._moves


def _package() -> Any:
    """Return the module ``textarena.envs.registration``."""
    extra_module("textarena", package="textarena", extra="textarena", feature="the environment textarena")
    return extra_module(
        "textarena.envs.registration",
        package="textarena",
        extra="textarena",
        feature="the environment textarena",
    )
