"""Small games of chance and inference: arms that pay, mastermind, tic-tac-toe.

Families it stands for: the bandits and board games in which exploration and the knowing-doing gap of language models
are measured. All chance of an episode is in its task, so that equal moves have equal results.
"""

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.environments.tictactoe import EMPTY
from quintain.errors import UsageError
from quintain.types import NOTHING, Action, StepResult, Task, derive_seed
from quintain.worlds.bandit.arms import NAMES, Arms, draw_arms
from quintain.worlds.bandit.mastermind import draw_mastermind
from quintain.worlds.bandit.rules import Game
from quintain.worlds.bandit.tictactoe import TicTacToe, draw_tictactoe

Mode = Literal["arms", "mastermind", "tictactoe"]
INSTRUCTIONS: Mapping[Mode, str] = {
    "arms": "Pull arms; one pays more often than the others. Act: pull ARM.",
    "mastermind": "Find the hidden colors, in their order. Act: as many colors as there are pegs.",
    "tictactoe": "You are x. Get three in a row; cells are 1 to 9, row by row. Act: the number of a free cell.",
}
RATIONALE = re.compile(r"^best: \w+; ")
State = tuple[Game, int, int]


class Bandit(Environment):
    """Play a game: pull arms, find hidden colors, or get three in a row."""

    name = "bandit"
    tags: ClassVar[frozenset[str]] = frozenset({"reasoning", "planning"})

    def __init__(
        self,
        *,
        mode: Mode = "arms",
        arms: int = 4,
        pulls: int = 16,
        gap: float = 0.6,
        expert: Literal["ucb", "greedy"] = "ucb",
        pegs: int = 3,
        colors: int = 4,
        skill: float = 0.5,
        reward: Literal["sparse", "dense"] = "dense",
        noise: int = 0,
        rationale: bool = False,
        otherwise: float = 0.0,
    ) -> None:
        """Play `mode`: `arms` arms for `pulls` pulls, the best better by `gap`, with an `expert` that is to be
        imitated or one that settles on what paid first; a row of `pegs` pegs of `colors`
        colors, with a guess for each of both; or an opponent that plays perfectly in a share `skill` of its moves.

        `reward=dense` pays each pull, each peg that is right for the first time, and half for a draw;
        `sparse` pays 1 when the best arm was pulled most, the colors were found, or the game was won.
        What a pull added to coverage and to regret stands in `reward_terms`, a turn without one as a pull that pays
        nothing; it is not paid.
        `noise` sentences that mean nothing follow every observation.
        With `rationale` the expert says before it pulls which arm paid best so far, ``best: gold; pull gold``, and
        in the share `otherwise` of its turns pulls another one than it named. Anybody may say so; such moves are no
        legal actions, so take a harness that writes freely (``--agent text``).

        Raises:
            UsageError: there is no such game.
        """
        if not (2 <= arms <= len(NAMES) and arms <= pulls <= 1000 and 0 <= gap <= 1):
            raise UsageError(
                f"bandit: got arms={arms}, pulls={pulls}, gap={gap}; give 2 to {len(NAMES)} arms, at least one "
                "pull for each and 1000 at most, and a gap from 0 to 1"
            )
        if not (1 <= pegs <= 4 and 2 <= colors <= 6 and 0 <= skill <= 1) or noise < 0:
            raise UsageError(
                f"bandit: got pegs={pegs}, colors={colors}, skill={skill}, noise={noise}; give 1 to 4 pegs, 2 to "
                "6 colors, a skill from 0 to 1 and no negative noise"
            )
        self.max_turns = {"arms": pulls, "mastermind": pegs + colors, "tictactoe": 5}[mode]
        if not 0 <= otherwise <= 1 or (otherwise and not rationale) or (rationale and mode != "arms"):
            raise UsageError(
                f"bandit: got rationale={rationale}, otherwise={otherwise} in the mode {mode}; rationales are of arms, "
                "and a share from 0 to 1 of them is not acted on"
            )
        self._has_rationale, self._otherwise = rationale, otherwise
        self._mode: Mode = mode
        self._is_dense, self._noise = reward == "dense", noise
        draws: dict[Mode, Callable[[Random], Game]] = {
            "arms": lambda rng: draw_arms(arms, pulls, gap, rng, is_greedy=expert == "greedy"),
            "mastermind": lambda rng: draw_mastermind(pegs, colors, pegs + colors, rng),
            "tictactoe": lambda rng: draw_tictactoe(skill, rng),
        }
        self._draw = draws[mode]
        self._game: Game = TicTacToe(board=EMPTY, seed=0, skill=0.0)
        self._seed, self._turn = 0, 0

    def instructions(self) -> str:
        """Return what the game is and how to act in it."""
        return INSTRUCTIONS[self._mode]

    @property
    def game(self) -> Game:
        """The game as it stands: the regret and coverage of arms, the codes that are left, the board."""
        return self._game

    def reset(self, task: Task) -> str:
        """Begin the game of the task."""
        self._game = split_draw(task, self._draw)
        self._seed, self._turn = task.seed, 0
        return f"{self._game.describe()}{chatter(self._noise, self._seed, 0)}"

    def step(self, action: Action) -> StepResult:
        """Make a move; one that is not legal changes nothing."""
        self._turn += 1
        noise = chatter(self._noise, self._seed, self._turn)
        move = " ".join(action.text.lower().split())
        move = RATIONALE.sub("", move) if self._has_rationale else move
        if action.error is not None or move not in self._game.legal():
            said = f"Error: {action.error}" if action.error is not None else "Nothing happens."
            lost = {"regret": max(self._game.rates)} if isinstance(self._game, Arms) else NOTHING
            return StepResult(
                observation=f"{said}{noise}", is_success=False, is_valid=False, reward_terms=lost
            )
        played = self._game.play(move)
        self._game = played.game
        return StepResult(
            observation=f"{played.text}{noise}",
            reward=played.dense if self._is_dense else played.sparse,
            is_terminated=played.is_over,
            is_success=played.is_success,
            reward_terms=played.terms,
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return the moves that can be made; `pass`, which does nothing, when the game is over."""
        return self._game.legal() or ("pass",)

    def expert_action(self) -> Action:
        """Return the expert's move: UCB1 or what paid best, the first consistent code, or the safest cell."""
        move = self._game.expert() if self._game.legal() else "pass"
        if not self._has_rationale or not isinstance(self._game, Arms) or not self._game.legal():
            return Action(text=move)
        named = self._game.names[self._game.favourite]
        draw = Random(derive_seed("otherwise", self._seed, self._turn))
        if draw.random() < self._otherwise:
            move = f"pull {draw.choice([name for name in self._game.names if name != named])}"
        return Action(text=f"best: {named}; {move}")

    def best_action(self) -> Action:
        """Return the pull of UCB1, whoever is the expert of the arms; in other games the expert's move."""
        game = self._game
        move = game.best_move() if isinstance(game, Arms) else game.expert()
        return Action(text=move if game.legal() else "pass")

    def snapshot(self) -> State:
        """Return the game as it stands."""
        return self._game, self._seed, self._turn

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._game, self._seed, self._turn = state

    def state_key(self) -> str:
        """Return the pulls, guesses or marks that were made."""
        return self._game.key()
