"""``quintain.train`` at the end of a user's file: it trains once when the file is run, and never at an import."""

import linecache
import runpy
import sys
from code import InteractiveInterpreter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from quintain import api as launch
from quintain.api import class_name
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.environments.session import session_source
from quintain.errors import UsageError
from quintain.types import Task
from quintain.worlds.guess.game import Guess

Cli = Callable[..., Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "guess.py"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The environments that a recipe was asked to train on; it builds each and stops there."""
    seen: list[str] = []

    def train(_method: object, _run: object, config: Any) -> None:
        seen.append(type(find(config.environment)()).__name__)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quintain.methods.loops.on_policy.OnPolicy.train", train)
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
    with pytest.raises(
        UsageError, match="a class Top that this session does not call by that name; define Top"
    ):
        class_name(Top)
    for missing in ({}, {"__file__": "<stdin>"}):
        vars(program).update({"Top": Top, **missing})
        assert class_name(Top) == "__main__:Top"
        assert find("__main__:Top").kind is Top, "this process finds it"
    (tmp_path / "a.py").touch()
    vars(program)["__file__"] = str(tmp_path / "a.py")
    assert class_name(Top) == f"{tmp_path}/a.py:Top"
    with pytest.raises(
        UsageError, match="'__main__:Gone', a class of another session; define Gone in this one"
    ):
        find("__main__:Gone")


def test_the_source_of_a_cell_is_known_where_the_session_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    space = vars(program) | {"Environment": Environment}
    cells = [
        "class Base(Environment):\n    def reset(self, task):\n        return ''\n",
        "class Mine(Base):\n    def step(self, action):\n        return ''\n",
    ]
    for number, cell in enumerate(cells):
        InteractiveInterpreter(space).runsource(cell, f"<cell {number}>", "exec")
    assert session_source(space["Mine"]) is None, "nobody kept the lines"
    for number, cell in enumerate(cells):
        lines = cell.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, f"<cell {number}>", (len(cell), None, lines, f"<cell {number}>"))
    assert session_source(space["Mine"]) == "\n\n".join(cells)
    assert session_source(Guess) is None, "it has a file"


def test_a_class_of_a_session_is_not_for_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = ModuleType("__main__")
    vars(program)["Top"] = Top
    monkeypatch.setitem(sys.modules, "__main__", program)
    monkeypatch.setattr(Top, "__module__", "__main__")
    with pytest.raises(UsageError, match="cluster: got 'local' with __main__:Top, a class of this session"):
        launch.train("grpo", environment=Top, run="one", root=tmp_path, cluster="local", model="micro")
    assert not list(tmp_path.iterdir())


def test_a_class_that_cannot_be_found_again_is_refused() -> None:
    class Inner(Top):
        """In a function."""

    with pytest.raises(UsageError, match="Inner; define it at the top of a module"):
        class_name(Inner)
