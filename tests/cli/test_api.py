"""``quintain.train`` at the end of a user's file: it trains once when the file is run, and never at an import."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from quintain import api as launch
from quintain.api import class_name
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.types import Task
from quintain.worlds.guess.game import Guess

Cli = Callable[..., Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "guess.py"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The environments that a recipe was asked to train on; it builds each and stops there."""
    seen: list[str] = []

    def train(_method: object, config: Any, _run: object) -> None:
        seen.append(type(find(config.environment)()).__name__)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quintain.api.train_by", train)
    monkeypatch.setattr(launch, "conclude", lambda _run: None)
    return seen


def test_the_example_trains_once_when_it_is_run(trained: list[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert trained == ["Guess"]
    assert len(list(Path("runs").iterdir())) == 1


def test_the_example_does_not_train_when_a_command_names_it(cli: Cli, trained: list[str]) -> None:
    spec = f"{EXAMPLE}:Guess"
    assert cli("check", spec, "--episodes", "2").status == 0
    assert (trained, list(Path().iterdir())) == ([], [])
    assert cli("train", "grpo", "--environment", spec, "--run", "one").status == 0
    assert cli("resume", "one").status == 0
    assert trained == ["Guess", "Guess"], "once for each command"
    assert [folder.name for folder in Path("runs").iterdir()] == ["one"]


class Top(Environment):
    """At the top of a module."""

    def reset(self, task: Task) -> str:
        return ""


def test_a_class_is_named_so_that_it_is_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert class_name(Guess) == "quintain.worlds.guess.game:Guess"
    program = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    monkeypatch.setattr(Top, "__module__", "__main__")
    with pytest.raises(UsageError, match="class Top of no file; write it to one"):
        class_name(Top)
    vars(program)["__file__"] = str(tmp_path / "a.py")
    assert class_name(Top) == f"{tmp_path}/a.py:Top"


def test_a_class_that_cannot_be_found_again_is_refused() -> None:
    class Inner(Top):
        """In a function."""

    with pytest.raises(UsageError, match="Inner; define it at the top of a module"):
        class_name(Inner)
