"""Text adventures that TextWorld (arXiv 1806.11532; package textworld) generates: quests, and two of its challenges.

Generation, parser, texts and walkthrough are the package's own. A game is compiled once, about a second, and kept in
a folder by the digest of what made it. Won and lost are the package's.
"""

import importlib
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, StepResult, Task, derive_seed

SEED_RANGE = 65_535
"""Seeds of the package's generator."""
LONGEST_COMMAND = 100
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "quest": {"rooms": 3, "objects": 6, "quest_length": 3},
    "coin_collector": {"level": 5},
    "treasure_hunter": {"level": 5},
}
"""Families of games → their settings with defaults; all but ``quest`` are challenges of the package."""
COUNTS = ("rooms", "objects", "quest_length", "level")
Facts = Any
"""The package's description of a state."""


class TextWorld(Environment):
    """Do what the quest asks. Write one command per turn, such as: go east, take key, open chest."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})

    def __init__(
        self, family: str = "quest", *, games: int = 0, max_turns: int = 30, folder: str = "", **settings: Any
    ) -> None:
        """Prepare to generate games of `family`; see `FAMILIES` for their `settings`.

        `games` bounds how many different ones there are of each split, 0 for all 32,767. They are kept in
        `folder` (``~/.cache/quintain/textworld`` when empty).

        Raises:
            MissingExtra: textworld is not installed.
            UsageError: there is no such family or setting, or a value is out of range.
        """
        if family not in FAMILIES:
            raise UsageError(f"textworld family: got {family!r}; {suggestion(family, FAMILIES)}")
        defaults = FAMILIES[family]
        for name in settings:
            if name not in defaults:
                raise UsageError(f"option of textworld/{family}: got {name!r}; {suggestion(name, defaults)}")
        self._settings = {**defaults, **settings}
        told = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        wrong = [name for name, value in self._settings.items() if not _fits(name, value, defaults[name])]
        if wrong or games < 0 or max_turns < self._settings.get("quest_length", 1):
            raise UsageError(
                f"textworld/{family}: got {told}, games={games}, max_turns={max_turns}; give values like "
                f"{', '.join(f'{name}={value!r}' for name, value in defaults.items())}, and as many turns as the "
                "quest is long"
            )
        self._package: Any = _package()
        self.name = f"textworld/{family}"
        self._family, self._games = family, games or SEED_RANGE // 2
        self.max_turns = max_turns
        self._folder = (
            Path(folder).expanduser() if folder else Path.home() / ".cache" / "quintain" / "textworld"
        )
        self._env: Any = None
        self._now: Facts = None

    def reset(self, task: Task) -> str:
        """Start the game of the task; train has the even seeds of the generator, eval the odd ones."""
        seed = 2 * ((task.seed >> 1) % self._games) + (task.split == "eval")
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
        return _clean(self._now.feedback)

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
            observation=_clean(self._now.feedback),
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
        stem = f"{self._family}-{derive_seed(repr(sorted(self._settings.items()))):016x}-{seed}"
        kept = self._folder / f"{stem}.z8"
        if kept.is_file():
            return kept
        self._folder.mkdir(parents=True, exist_ok=True)
        options = self._package.GameOptions()
        options.seeds, options.force_recompile = seed, True
        with tempfile.TemporaryDirectory(dir=self._folder) as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options.path = str(Path(place) / kept.name)
            self._generate(options)
            # The description first: a game that is there is complete.
            os.replace(Path(place) / f"{stem}.json", kept.with_suffix(".json"))
            os.replace(options.path, kept)
        return kept

    def _generate(self, options: Any) -> None:
        """Generate and compile the game of `options`."""
        if self._family == "quest":
            options.nb_rooms, options.nb_objects = self._settings["rooms"], self._settings["objects"]
            options.quest_length = self._settings["quest_length"]
            self._package.make(options)
            return
        challenge: Any = importlib.import_module(f"textworld.challenges.tw_{self._family}.{self._family}")
        # Its number generators are made on first use, from the seeds.
        game = challenge.make(dict(self._settings), options)
        self._package.generator.compile_game(game, options)


def _fits(name: str, value: Any, default: Any) -> bool:
    """Whether `value` can stand where `default` stands."""
    return type(value) is type(default) and (name not in COUNTS or value >= 1)


def _clean(feedback: str) -> str:
    """Return the game's text without its banner and without the status line that is padded with blanks."""
    lines = [line.rstrip() for line in feedback.split("\n")]
    kept = [line for line in lines if line and not set(line) <= set("\\|$_/ >")]
    return "\n".join(line for line in kept if "     " not in line.strip() and line != ">").strip()


def _package() -> Any:
    """Return the module ``textworld``."""
    return extra_module(
        "textworld", package="textworld", extra="textworld", feature="the environment textworld"
    )
