"""PettingZoo's classic games (arXiv 2009.14471; package pettingzoo): tictactoe, connect_four and rps.

Rules, action masks and rewards are the package's own. Its pickles lose the state of the game, so a snapshot is the
list of actions so far, played again. What an opponent does depends on the task and the moves so far alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.environments.tictactoe import free, put, value
from quintain.errors import UsageError, suggestion
from quintain.types import Action, StepResult, Task, derive_seed

Opponent = Literal["random", "expert", "self"]
SEATS = ("player 1", "player 2")
State = tuple[int, int, tuple[int, ...]]
"""task seed, the agent's seat, actions so far"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """How a game of the package is told: ``GAMES["rps_v2"]``."""

    instructions: str
    words: tuple[str, ...]
    """names of the actions, by number"""
    tell: Callable[[Any, int], str]
    """(observation, number of the seat) → text"""
    max_turns: int
    """moves of both seats together"""
    most: float = 1.0
    """the largest reward of an episode; the smallest is its negative"""


class PettingZoo(Environment):
    """Play the game and win."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning"})

    def __new__(cls, game: str = "tictactoe_v3", *, opponent: Opponent = "random") -> Self:
        """Return an environment with an expert where the game has one."""
        return super().__new__(cast("type[Self]", Skilled) if cls is PettingZoo and game in EXPERTS else cls)

    def __init__(self, game: str = "tictactoe_v3", *, opponent: Opponent = "random") -> None:
        """Make `game`: tictactoe_v3, connect_four_v3 or rps_v2.

        The opponent makes random legal moves, plays as the expert does, or is played by the agent, too, which
        then has both seats. Against an opponent the task says which seat is the agent's.

        Raises:
            MissingExtra: pettingzoo is not installed.
            UsageError: there is no such game or opponent.
        """
        if game not in GAMES:
            raise UsageError(f"pettingzoo game: got {game!r}; {suggestion(game, GAMES)}")
        if opponent not in ("random", "expert", "self") or (opponent == "expert" and game not in EXPERTS):
            raise UsageError(
                f"opponent of pettingzoo/{game}: got {opponent!r}; choose random or self"
                f"{', or expert where there is one'}"
            )
        self.name = f"pettingzoo/{game}"
        self._game, self._name, self._opponent = GAMES[game], game, opponent
        self._env: Any = _package(game).env()
        self._numbers = {word: number for number, word in enumerate(self._game.words)}
        self.max_turns = self._game.max_turns
        self.return_range = (-self._game.most, self._game.most)
        self._restart(0, 0)

    def instructions(self) -> str:
        """Return the rules."""
        return self._game.instructions

    def seats(self) -> tuple[str, ...]:
        """Return the seats that the agent plays."""
        return SEATS if self._opponent == "self" else (SEATS[self._agent],)

    def seat(self) -> str:
        """Return the seat that acts next."""
        return SEATS[self._acting()]

    def reset(self, task: Task) -> str:
        """Start a game; an opponent that has the first seat moves."""
        self._restart(task.seed, 0 if self._opponent == "self" else (task.seed >> 1) & 1)
        self._reply()
        return self._view()

    def step(self, action: Action) -> StepResult:
        """Make the move that `action` names, and the opponent's; a move that is not legal changes nothing.

        The reward is that of the agent's seat (the first, when it plays both; `rewards` then has both).
        """
        legal = self.legal_actions()
        word = action.text.strip().lower()
        if action.error is not None or word not in legal:
            problem = action.error or f"no such move; choose one of {', '.join(legal)}"
            return StepResult(observation=f"Error: {problem}\n{self._view()}", is_valid=False)
        before = list(self._totals)
        self._move(self._numbers[word])
        self._reply()
        gains = [after - earlier for after, earlier in zip(self._totals, before, strict=True)]
        is_over = self._is_over()
        return StepResult(
            observation=self._outcome() if is_over else self._view(),
            reward=gains[self._agent],
            is_terminated=is_over,
            is_success=self._totals[self._agent] > 0 if is_over else None,
            rewards=dict(zip(SEATS, gains, strict=True)) if self._opponent == "self" else {},
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return the moves that the package's mask allows; none after the end."""
        if self._is_over():
            return self._game.words
        return tuple(self._game.words[number] for number in self._legal())

    def snapshot(self) -> State:
        """Return the moves so far."""
        return self._seed, self._agent, tuple(self._taken)

    def restore(self, state: State) -> None:
        """Play the moves of a snapshot again."""
        seed, agent, taken = state
        self._restart(seed, agent)
        for number in taken:
            self._move(number)

    def state_key(self) -> str:
        """Return the position, whose turn it is and the seat; of rps, all moves so far."""
        shown = repr(self._taken) if self._name == "rps_v2" else repr(_marks(self._observe()))
        return f"{derive_seed(shown)}:{self._acting()}:{self._agent}"

    def _restart(self, seed: int, agent: int) -> None:
        self._seed, self._agent = seed, agent
        self._taken: list[int] = []
        self._totals = [0.0, 0.0]
        self._env.reset(seed=seed % (1 << 32))

    def _acting(self) -> int:
        """Return the number of the seat that acts next."""
        return self._env.possible_agents.index(self._env.agent_selection)

    def _is_over(self) -> bool:
        return any(self._env.terminations.values()) or any(self._env.truncations.values())

    def _observe(self) -> Any:
        """Return what the acting seat observes."""
        found = self._env.observe(self._env.agent_selection)
        return found["observation"] if isinstance(found, dict) else found

    def _legal(self) -> tuple[int, ...]:
        """Return the numbers of the legal moves."""
        found = self._env.observe(self._env.agent_selection)
        if not isinstance(found, dict):
            return tuple(range(len(self._game.words)))
        return tuple(int(number) for number in np.flatnonzero(found["action_mask"]))

    def _move(self, number: int) -> None:
        """Make move `number`; both seats' rewards of it are added up."""
        self._taken.append(number)
        self._env.step(number)
        for seat, agent in enumerate(self._env.possible_agents):
            self._totals[seat] += float(self._env.rewards.get(agent, 0.0))

    def _reply(self) -> None:
        """Let the opponent move, if there is one and it is its turn."""
        if self._opponent == "self" or self._is_over() or self._acting() == self._agent:
            return
        rng = Random(derive_seed("pettingzoo", self._seed, len(self._taken), repr(self._taken)))
        self._move(self._expert() if self._opponent == "expert" else rng.choice(self._legal()))

    def _expert(self) -> int:
        return EXPERTS[self._name](self._observe(), self._legal())

    def _view(self) -> str:
        return f"You are {SEATS[self._acting()]}. {self._game.tell(self._observe(), self._acting())}"

    def _outcome(self) -> str:
        total = self._totals[self._agent]
        return f"{SEATS[self._agent]} {'wins' if total > 0 else 'loses' if total < 0 else 'draws'}."


class Skilled(PettingZoo):
    """A game with an expert."""

    is_variant = True

    def expert_action(self) -> Action:
        """Return a good move: perfect play in tictactoe; in connect_four a win, a block, or the middle."""
        return Action(text=self._game.words[self._expert()])


def _package(game: str) -> Any:
    """Return the package's module of `game`, which draws with pygame even where nothing is drawn."""
    feature = "the environment pettingzoo"
    extra_module("pettingzoo", package="pettingzoo", extra="pettingzoo", feature=feature)
    extra_module("pygame", package="pygame-ce", extra="pettingzoo", feature=feature)
    family = game.rpartition("_")[0]
    # The short name, pettingzoo.classic.tictactoe_v3, warns that it is going away.
    return extra_module(
        f"pettingzoo.classic.{family}.{family}", package="pettingzoo", extra="pettingzoo", feature=feature
    )


def _marks(observation: Any) -> tuple[int, ...]:
    """Return the cells of a board: 1 is the acting seat's, -1 the other's, 0 empty."""
    cells = observation[..., 0].astype(int) - observation[..., 1].astype(int)
    return tuple(int(cell) for cell in cells.ravel())


def _tell_tictactoe(observation: Any, _seat: int) -> str:
    """Return the board; the package counts its cells column by column."""
    marks = _marks(observation)
    cells = {mark: [str(n) for n, found in enumerate(marks) if found == mark] for mark in (1, -1, 0)}
    return f"yours: {' '.join(cells[1]) or 'none'}; theirs: {' '.join(cells[-1]) or 'none'}; free: {' '.join(cells[0])}"


def _tell_connect_four(observation: Any, _seat: int) -> str:
    """Return the board, top row first."""
    signs = {1: "x", -1: "o", 0: "."}
    marks = _marks(observation)
    rows = ["".join(signs[mark] for mark in marks[start : start + 7]) for start in range(0, 42, 7)]
    return "You play x.\n" + "\n".join(rows)


def _tell_rps(observation: Any, _seat: int) -> str:
    """Return the opponent's last move."""
    names = ("rock", "paper", "scissors", "nothing yet")
    return f"The other played {names[int(observation)]}."


def _tictactoe_expert(observation: Any, legal: tuple[int, ...]) -> int:
    """Return the first of the moves with the best value under perfect play."""
    board = "".join({1: "x", -1: "o", 0: "."}[mark] for mark in _marks(observation))
    assert set(free(board)) == set(legal)
    return max(legal, key=lambda cell: value(put(board, cell, "x"), "o"))


def _connect_four_expert(observation: Any, legal: tuple[int, ...]) -> int:
    """Return a winning column, else one that stops the other's win, else the most central safe one."""
    marks = _marks(observation)
    central = sorted(legal, key=lambda column: abs(column - 3))
    for mark in (1, -1):
        for column in central:
            if _wins(_drop(marks, column, mark), mark):
                return column
    safe = [column for column in central if not _gives_win(_drop(marks, column, 1))]
    return (safe or central)[0]


def _gives_win(marks: tuple[int, ...]) -> bool:
    """Whether the other wins with its next move."""
    return any(marks[column] == 0 and _wins(_drop(marks, column, -1), -1) for column in range(7))


def _drop(marks: tuple[int, ...], column: int, mark: int) -> tuple[int, ...]:
    """Return the board after `mark` fell into `column`."""
    cell = max(place for place in range(column, 42, 7) if marks[place] == 0)
    return (*marks[:cell], mark, *marks[cell + 1 :])


def _wins(marks: tuple[int, ...], mark: int) -> bool:
    """Whether `mark` has four in a row."""
    grid = np.array(marks).reshape(6, 7) == mark
    return any(
        all(
            0 <= row + k * down < 6
            and 0 <= column + k * right < 7
            and grid[row + k * down, column + k * right]
            for k in range(4)
        )
        for row, column in np.argwhere(grid).tolist()
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    )


EXPERTS: Mapping[str, Callable[[Any, tuple[int, ...]], int]] = {
    "tictactoe_v3": _tictactoe_expert,
    "connect_four_v3": _connect_four_expert,
}
GAMES: Mapping[str, Game] = {
    "tictactoe_v3": Game(
        instructions="Tic-tac-toe. Cells are 0 to 8, column by column: 0 1 2 is the left column. Act: a free cell.",
        words=tuple(str(cell) for cell in range(9)),
        tell=_tell_tictactoe,
        max_turns=20,
    ),
    "connect_four_v3": Game(
        instructions="Connect four. Drop a disc into a column, 0 is the left one. Act: the number of the column.",
        words=tuple(str(column) for column in range(7)),
        tell=_tell_connect_four,
        max_turns=60,
    ),
    "rps_v2": Game(
        instructions="Rock, paper, scissors: 15 rounds, the other's move is told after each. "
        "Act: rock, paper or scissors.",
        words=("rock", "paper", "scissors"),
        tell=_tell_rps,
        max_turns=40,
        most=15.0,
    ),
}
