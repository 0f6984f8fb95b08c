"""Text adventures that TextWorld (arXiv 1806.11532; package textworld) generates: rooms, objects and a quest.

Generation, parser, texts and walkthrough are the package's own. A game is compiled once, about a second, and
kept in a folder by the digest of what made it. The one rule: won and lost are the package's.
"""

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, ClassVar

from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import Action, StepResult, Task, derive_seed

SEED_RANGE = 65_535
"""Seeds of the package's generator."""
LONGEST_COMMAND = 100
Facts = Any
"""The package's description of a state."""


class TextWorld(Environment):
    """Do what the quest asks. Write one command per turn, such as: go east, take key, open chest."""

    name = "textworld"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})

    def __init__(
        self,
        *,
        rooms: int = 3,
        objects: int = 6,
        quest_length: int = 3,
        max_turns: int = 30,
        folder: str = "",
    ) -> None:
        """Prepare to generate games; they are kept in `folder` (``~/.cache/quintain/textworld`` when empty).

        Raises:
            MissingExtra: textworld is not installed.
            UsageError: a knob is out of range.
        """
        if min(rooms, objects, quest_length) < 1 or max_turns < quest_length:
            raise UsageError(
                f"textworld: got rooms={rooms}, objects={objects}, quest_length={quest_length}, max_turns={max_turns}; "
                "give 1 or more of each, and as many turns as the quest is long"
            )
        self._package: Any = _package()
        self._rooms, self._objects, self._quest_length = rooms, objects, quest_length
        self.max_turns = max_turns
        self._folder = (
            Path(folder).expanduser() if folder else Path.home() / ".cache" / "quintain" / "textworld"
        )
        self._env: Any = None
        self._now: Facts = None

    def reset(self, task: Task) -> str:
        """Start the game of the task; train has the even seeds of the generator, eval the odd ones."""
        seed = 2 * ((task.seed >> 1) % (SEED_RANGE // 2)) + (task.split == "eval")
        game = self._game(seed)
        self.close()
        infos = self._package.EnvInfos(
            admissible_commands=True, policy_commands=True, won=True, lost=True, facts=True, objective=True
        )
        with warnings.catch_warnings():
            # The interpreter warns that it does not know the game; TextWorld keeps the score itself.
            warnings.simplefilter("ignore")
            self._env = self._package.start(str(game), infos)
            self._now = self._env.reset()
        return _cleaned(self._now.feedback)

    def step(self, action: Action) -> StepResult:
        """Give the command to the game."""
        # The interpreter reads ASCII; a NUL byte would leave it waiting.
        text = action.text.encode("ascii", "replace").decode()[:LONGEST_COMMAND]
        command = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
        if action.error is not None or not command:
            return StepResult(observation=f"Error: {action.error or 'write a command'}", is_valid=False)
        self._now, _, is_done = self._env.step(command)
        has_won = bool(self._now.won)
        is_over = bool(is_done) or has_won or bool(self._now.lost)
        return StepResult(
            observation=_cleaned(self._now.feedback),
            reward=float(has_won),
            is_terminated=is_over,
            is_success=has_won if is_over else None,
        )

    def close(self) -> None:
        """End the interpreter."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def legal_actions(self) -> tuple[str, ...]:
        """Return the commands that the package lists in this state."""
        return tuple(sorted(dict.fromkeys(self._now.admissible_commands)))

    def expert_action(self) -> Action:
        """Return the next command of the walkthrough from here.

        Raises:
            EnvironmentFault: the quest cannot be finished any more.
        """
        commands = self._now.policy_commands
        if not commands:
            raise EnvironmentFault(
                "expert of textworld has no action: got a quest that is lost; skip its demonstration"
            )
        return Action(text=commands[0])

    def snapshot(self) -> tuple[Any, Facts]:
        """Return a copy of the running game; it cannot leave the process."""
        return self._env.copy(), self._now

    def restore(self, state: tuple[Any, Facts]) -> None:
        """Continue from a snapshot."""
        self.close()
        self._env, self._now = state[0].copy(), state[1]

    def state_key(self) -> str:
        """Return a digest of all facts that hold."""
        return str(derive_seed(*sorted(map(str, self._now.facts))))

    def _game(self, seed: int) -> Path:
        """Return the compiled game of `seed`, generated if it is not there yet."""
        stem = f"r{self._rooms}-o{self._objects}-q{self._quest_length}-s{seed}"
        kept = self._folder / f"{stem}.z8"
        if kept.is_file():
            return kept
        self._folder.mkdir(parents=True, exist_ok=True)
        options = self._package.GameOptions()
        options.seeds, options.nb_rooms, options.nb_objects = seed, self._rooms, self._objects
        options.quest_length, options.force_recompile = self._quest_length, True
        with tempfile.TemporaryDirectory(dir=self._folder) as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options.path = str(Path(place) / kept.name)
            self._package.make(options)
            # The description first: a game that is there is complete.
            os.replace(Path(place) / f"{stem}.json", kept.with_suffix(".json"))
            os.replace(options.path, kept)
        return kept


def _cleaned(feedback: str) -> str:
    """Return the game's text without its banner and without the status line that is padded with blanks."""
    lines = [line.rstrip() for line in feedback.split("\n")]
    kept = [line for line in lines if line and not set(line) <= set("\\|$_/ >")]
    return "\n".join(line for line in kept if "     " not in line.strip() and line != ">").strip()


def _package() -> Any:
    """Return the module ``textworld``."""
    return extra_module(
        "textworld", package="textworld", extra="textworld", feature="the environment textworld"
    )
