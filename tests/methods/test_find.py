"""A method is found by name, in a file or module of the user's, or in an installed package; else it is said why not."""

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.build import shorten_corpus

import quintain
from quintain.api import resume
from quintain.errors import UsageError
from quintain.methods.find import FoundMethod, find_method
from quintain.methods.imitation import sft
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs
from quintain.methods.quickstart import method as quickstart
from quintain.methods.rl import grpo
from quintain.methods.table import MODULES, TABLE, method_entry_points

MINE = '''"""Twice the reward.

More of it.
"""

from dataclasses import dataclass

from quintain.methods.loops.on_policy import OnPolicy
from quintain.learning.update import Update
from quintain.methods.method import sample_groups
from quintain.credit.outcome import outcome_return
from quintain.losses.policy import reinforce
from quintain.learning.train_config import OnPolicyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyConfig):
    """Configuration of it."""

    tasks: int = 3


def method(config: Config) -> OnPolicy:
    """Return it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, 1),
        credit=lambda groups, _: outcome_return(groups),
        update=Update(loss=reinforce()),
    )
'''
ANOTHER = (
    MINE
    + '''

def other(config: Config) -> OnPolicy:
    """The other one."""
    return method(config)
'''
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """Return what writes a file of the user's."""

    def write(text: str, name: str = "mine.py") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write


def described(found: FoundMethod) -> tuple[str, str, str]:
    return found.label, found.config_class.__name__, found.summary


NEEDED = {name: {"reward_model": "rm"} for name in ("instruct_gpt", "learning_to_summarize", "web_gpt")} | {
    "generation": {"description": "adds numbers"}
}
"""What methods cannot begin without."""


@pytest.mark.parametrize("name", MODULES)
def test_every_method_of_the_table_is_found_and_makes_a_value(name: str) -> None:
    found = find_method(name)
    module = importlib.import_module(MODULES[name])
    assert (found.spec, found.label, found.config_class) == (name, name, module.Config)
    assert found.summary == (module.__doc__ or "").partition("\n")[0] != ""
    assert ": " in found.summary and found.summary.endswith(".") and " = " not in found.summary, "words"
    config = found.config_class(**NEEDED.get(name, {}))
    config.check()
    made = found.make(config)
    assert isinstance(made.needs, Needs) and callable(made.train)


def test_modules_have_the_names_of_their_methods() -> None:
    """One name per method: of the command, of its file; `tests/test_docs.py` looks for its page."""
    named = {entry.name: entry.module for entry in TABLE if entry.module}
    assert {name: f"quintain.methods.{module}" for name, module in named.items()} == MODULES
    for entry in TABLE:
        if entry.page and entry.module:
            assert entry.module.rpartition(".")[2] == entry.name


def test_a_file_is_found_by_its_path(
    written: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(MINE)
    monkeypatch.chdir(tmp_path)
    found = find_method("mine.py")
    assert described(found) == ("mine", "Config", "Twice the reward.")
    assert found.spec == str(file), "a run can be resumed from another folder"
    monkeypatch.chdir("/")
    again = find_method(found.spec)
    assert again.config_class is found.config_class
    assert isinstance(again.make(again.config_class(tasks=2)), OnPolicy)


def test_a_function_in_a_file_is_found_by_its_name(
    written: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(ANOTHER)
    monkeypatch.chdir(tmp_path)
    found = find_method("mine.py:other")
    assert described(found) == ("other", "Config", "The other one.")
    assert found.spec == f"{file}:other"
    monkeypatch.chdir("/")
    assert find_method(found.spec).function is found.function
    with pytest.raises(UsageError, match=r"mine.py:othre'; did you mean 'other'\?$"):
        find_method(f"{file}:othre")


def test_of_two_methods_the_one_called_method_is_it_or_one_must_be_named(
    written: Callable[..., Path],
) -> None:
    assert find_method(str(written(ANOTHER))).function.__name__ == "method"
    file = written(
        ANOTHER.replace("def method", "def one").replace("method(config)", "one(config)"), "two.py"
    )
    with pytest.raises(
        UsageError, match=r"which defines 2 methods \(one, other\); .*or name one: .*two.py:one$"
    ):
        find_method(str(file))
    assert find_method(f"{file}:one").label == "one"
    only = written(MINE.replace("def method", "def only"), "single.py")
    assert find_method(str(only)).function.__name__ == "only"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "x = 1\n",
            r"which defines no method; define one function method\(config\) that returns a method: OnPolicy,",
        ),
        (
            "import nowhere_at_all\n",
            r"import ends with ModuleNotFoundError: .*nowhere_at_all.* \(line 1\); mend",
        ),
        (
            "x = 1\n\n\ny = x / 0\n",
            r"import ends with ZeroDivisionError: division by zero \(line 4\); mend the file",
        ),
        ("def f(:\n", r"import ends with SyntaxError: .*line 1.*; mend the file"),
        (
            "from quintain.methods.loops.on_policy import OnPolicy\n\ndef method(config: int) -> OnPolicy: ...\n",
            r"whose configuration is no dataclass; define a frozen dataclass Config",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(text: str, said: str, written: Callable[[str], Path]) -> None:
    file = written(text)
    with pytest.raises(UsageError, match=said) as caught:
        find_method(str(file))
    assert str(caught.value).startswith(f"method: got '{file}'") and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said_to_be() -> None:
    with pytest.raises(UsageError, match=r"^method: got 'nowhere/mine.py', but there is no such file"):
        find_method("nowhere/mine.py")


def test_modules_and_functions_are_methods_too() -> None:
    found = find_method(grpo)
    assert (found.spec, found.label, found.config_class) == ("quintain.methods.rl.grpo", "grpo", grpo.Config)
    found = find_method(quickstart)
    assert (found.spec, found.label) == ("quintain.methods.quickstart:method", "method")
    assert find_method(found.spec).function is quickstart
    with pytest.raises(UsageError, match=r"'quintain.methods.rl.grpp:method', but there is no module"):
        find_method("quintain.methods.rl.grpp:method")
    with pytest.raises(UsageError, match=r"'quintain.methods.rl.grpo:methd'; did you mean 'method'\?"):
        find_method("quintain.methods.rl.grpo:methd")


def test_a_function_of_no_file_cannot_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.setattr(quickstart, "__module__", "__main__")
    with pytest.raises(UsageError, match="got a function of no file; write it to one, and import it"):
        find_method(quickstart)


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^method: got 'grop'; did you mean 'grpo'\?, or give a file.py$"):
        find_method("grop")
    with pytest.raises(UsageError, match=r"got 'xyzzy'; choose from .*grpo, .*ppo"):
        find_method("xyzzy")


@pytest.fixture
def installed(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return what lets packages bring entry points: name → value."""
    folder = written(MINE, "brought_method.py").parent
    written("import nowhere_at_all\n", "broken_method.py")
    monkeypatch.syspath_prepend(str(folder))

    def bring(**values: str) -> None:
        points = [EntryPoint(name=n, value=v, group="quintain.methods") for n, v in values.items()]
        monkeypatch.setattr(
            "importlib.metadata.entry_points", lambda group: points if group == "quintain.methods" else []
        )

    yield bring
    for name in ("brought_method", "broken_method"):
        sys.modules.pop(name, None)


def test_packages_bring_methods(installed: Callable[..., None]) -> None:
    installed(
        twice="brought_method", broken="broken_method", value="brought_method:Config", grpo="broken_method"
    )
    assert [point.name for point in method_entry_points()] == ["broken", "grpo", "twice", "value"]
    found = find_method("twice")
    assert described(found) == ("twice", "Config", "Twice the reward.") and found.spec == "twice"
    assert find_method("grpo").config_class is grpo.Config, "the house's own names cannot be taken"
    with pytest.raises(UsageError, match=r"did you mean 'twice'\?"):
        find_method("twic")


def test_a_package_whose_method_does_not_load_is_named_and_others_still_work(
    installed: Callable[..., None],
) -> None:
    installed(twice="brought_method", broken="broken_method", value="brought_method:Config")
    with pytest.raises(
        UsageError,
        match=r"^method 'broken': got ModuleNotFoundError: .* entry point 'broken_method'; mend or uninstall",
    ):
        find_method("broken")
    with pytest.raises(UsageError, match=r"^method 'value': got a type from the entry point .*name a module"):
        find_method("value")
    assert find_method("twice").label == "twice" and find_method("sft").config_class is sft.Config


def test_nothing_is_written_for_a_method_that_is_not_found(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    """Before anything is written: no run folder, and no root of runs."""
    file = written("x = 1\n")
    for spec in ("grop", str(file), f"{file}:nothing", "nowhere.py"):
        with pytest.raises(UsageError, match=r"^method: got"):
            quintain.train(spec, environment="guess", model="micro", root=tmp_path / "runs")
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py"}


SMALL: dict[str, Any] = {
    "environment": "guess?max_turns=1&high=3", "model": "micro", "demonstrations": 2, "imitation_epochs": 1,
    "steps": 1, "eval_episodes": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("credit", "told"),
    [
        (
            "nothing_here",
            r"method mine: got NameError: name 'nothing_here' is not defined, in line 27 of .*mine.py; ",
        ),
        ("None", "credit of the method: got NoneType for no episodes; return a Credit, "),
        ("{}['a']", "method mine: got KeyError: 'a', in line 27 of "),
    ],
)
def test_what_a_method_of_the_users_raises_is_told_with_its_line_before_anything_is_imitated(
    written: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credit: str, told: str
) -> None:
    monkeypatch.setattr("quintain.methods.loops.requirements.begin_run", None)
    file = written(MINE.replace("outcome_return(groups),", f"{credit},"))
    with pytest.raises(UsageError, match=told):
        quintain.train(str(file), root=tmp_path / "runs", run="one", **SMALL)


def test_what_quintain_raises_beneath_a_method_of_the_users_stays_an_error_of_quintain(
    written: Callable[[str], Path],
) -> None:
    found = find_method(str(written(MINE.replace("outcome_return(groups)", "outcome_return(3)"))))
    method: Any = found.make(found.config_class())
    with pytest.raises(TypeError), found.blame_file():
        method.credit((), None)


def test_what_the_function_of_a_method_of_the_users_raises_is_told(written: Callable[[str], Path]) -> None:
    found = find_method(
        str(written(MINE.replace("    return OnPolicy(", "    config.no_such\n    return OnPolicy(")))
    )
    with pytest.raises(
        UsageError, match=r"got AttributeError: .* 'no_such', in line 25 of .*; mend the file"
    ):
        found.make(found.config_class())


def test_a_method_of_the_users_trains_and_its_run_is_found_again(
    written: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch, 2)
    file = written(MINE)
    folder = quintain.train(str(file), root=tmp_path / "runs", run="one", **SMALL)
    from quintain.store.run import Run

    with Run.open(folder, writable=False) as run:
        assert (run.recipe, run.status, run.last_step) == (str(file), "done", 1)
        assert len({t.task.id for t in run.trajectories(step=1, phase="train")}) == 3
    assert resume(folder) == folder
