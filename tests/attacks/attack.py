"""What an attack is: a name, an attempt, and the defence whose absence must let it through.

Each attack runs twice. Against the build as it is, it must be denied, with words that say so, and leave the canaries of
the host alone. Against a build in which its defence is switched off it must land: otherwise the test could not fail. No
attempt does harm where it lands; it reads what was planted for it, or asks whether it might.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.attacks.canaries import Canaries

from quintain.errors import QuintainError

MINIMUM = {"A1": 25, "A2": 25, "A3": 15, "A4": 15, "A5": 10, "A6": 20, "A7": 15, "A8": 10, "A12": 15}
TITLES = {
    "A1": "escape and kernel surface",
    "A2": "files and paths",
    "A3": "network",
    "A4": "resources",
    "A5": "secrets",
    "A6": "tampering with rewards",
    "A7": "loading of data",
    "A8": "chat templates",
    "A12": "names and configuration",
}

MISFIT = re.compile(
    r"<module .*> has no attribute|takes .* positional argument|unexpected keyword|missing .* required positional"
)
"""What Python says where something is replaced that is not there, or by what is called otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where an attack takes place."""

    canaries: Canaries
    folder: Path
    """empty, of this attempt alone"""
    patch: pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Found:
    """What became of an attempt, in words of whoever denied it or of the attacker."""

    landed: bool
    said: str


@dataclass(frozen=True, slots=True)
class Attack:
    """``Attack("A12", "a name with a parent in it", attempt, weaken)``."""

    kind: str
    name: str
    attempt: Callable[[Scene], Found]
    weaken: Callable[[Scene], None]
    """Switches off the defence, through `Scene.patch`."""
    alone: Callable[[Scene], None] | None = None
    """Leaves the attacker to the limits of the machine; where these stop it, too, the defence cannot be tried here."""


def refused(
    work: Callable[[Scene], object], *, by: type[QuintainError] = QuintainError
) -> Callable[[Scene], Found]:
    """Return an attempt that is denied where `work` raises an error of the house; else, it lands."""

    def attempt(scene: Scene) -> Found:
        try:
            return Found(True, f"got {work(scene)!r}"[:200])
        except by as error:
            return Found(False, str(error))
        except Exception as error:
            if MISFIT.search(str(error)):
                raise  # the attack, or the build that it weakens, knows another version of the house
            return Found(True, f"it broke us: {type(error).__name__}: {error}"[:200])

    return attempt


def both(*weakenings: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Return what switches several defences off: they lie behind each other."""

    def weaken(scene: Scene) -> None:
        for each in weakenings:
            each(scene)

    return weaken
