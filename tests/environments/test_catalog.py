import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

import quintain
from quintain.adapters.gym.environment import Gymnasium
from quintain.environments.catalog import ADAPTERS, CATALOG, find, is_importing
from quintain.environments.protocol import Environment, advance, begin, tool_action
from quintain.environments.specs import place_files
from quintain.errors import UsageError
from quintain.types import Task
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor

README_EXAMPLE = '''\
import quintain

class Guess(quintain.Environment):
    """Find the hidden number between 1 and 32."""

    def reset(self, task):
        self.secret = task.rng.randint(1, 32)
        return "Find the hidden number between 1 and 32."

    @quintain.tool
    def guess(self, number: int) -> str:
        """Guess the hidden number."""
        if number == self.secret:
            return self.finish("correct", reward=1.0)
        return "higher" if self.secret > number else "lower"
'''


class Knobbed(Environment):
    """Has options."""

    def __init__(
        self,
        size: int = 1,
        *,
        rate: float = 0.5,
        mode: Literal["a", "b"] = "a",
        word: str = "",
        deep: bool = False,
    ) -> None:
        self.options = (size, rate, mode, word, deep)

    def reset(self, task: Task) -> str:
        return ""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "worlds.py"
    path.write_text(README_EXAMPLE)
    return path


def test_every_name_of_the_catalogue_leads_somewhere() -> None:
    for place in CATALOG.values():
        assert importlib.util.find_spec(place.partition(":")[0]) is not None
    assert set(ADAPTERS) <= set(CATALOG)


def test_what_is_chosen_for_an_adapter_tells_the_agent_as_much_as_the_adapter() -> None:
    """`__new__` chooses a class with an expert or a list of actions: its docstring is not for the agent."""
    silent: set[str] = set()
    for place in CATALOG.values():
        module = importlib.import_module(place.partition(":")[0])
        adapter = vars(module)[place.partition(":")[2]]
        for kind in vars(module).values():
            is_below = isinstance(kind, type) and issubclass(kind, adapter) and kind is not adapter
            if is_below and not vars(kind).get("is_variant") and "instructions" not in vars(kind):
                silent.add(kind.__name__)
    workers = {"_Expert", "_Legal", "_Keyed", "_Seated"}  # which tell what the environment in them tells
    assert silent == {*workers, "BfclTurns"}, "whose docstring is for the agent"


def test_names_build_fresh_environments() -> None:
    recipe = find("keydoor?rooms=3&irreversible=true")
    world = recipe()
    assert isinstance(world, KeyDoor) and world is not recipe()
    assert world.max_turns == KeyDoor(rooms=3, irreversible=True).max_turns
    assert isinstance(find("guess")(), Guess) and isinstance(find(Guess)(), Guess)
    lake = find("gymnasium/FrozenLake-v1?is_slippery=false&map_name=8x8")()
    assert isinstance(lake, Gymnasium) and lake.name == "gymnasium/FrozenLake-v1"
    assert "FFFFFFFF" in str(begin(lake, lake.task("train", 0)))


def test_the_thirty_line_example_runs_from_its_file(example: Path) -> None:
    recipe = find(f"{example}:Guess")
    world = recipe()
    assert type(recipe()) is type(world), "the file is read once"
    assert [spec.name for spec in world.tools()] == ["guess"]
    assert world.instructions() == "Find the hidden number between 1 and 32."
    assert begin(world, world.task("train", 0)) == "Find the hidden number between 1 and 32."
    answers = [advance(world, tool_action("guess", number=number)) for number in range(1, 33)]
    said = [str(answer.observation) for answer in answers]
    secret = said.index("correct")
    assert set(said[:secret]) <= {"higher"} and set(said[secret + 1 :]) <= {"lower"}
    assert (answers[secret].reward, answers[secret].is_terminated, answers[secret].is_success) == (
        1.0,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", (1, 0.5, "a", "", False)),
        ("?size=3&rate=1&mode=b&word=hi&deep=true", (3, 1, "b", "hi", True)),
        ("?word=3&deep=False", (1, 0.5, "a", "3", False)),
    ],
)
def test_options_by_value(query: str, options: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "knobbed", f"{__name__}:Knobbed")
    world = find(f"knobbed{query}")()
    assert vars(world)["options"] == options


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("gues", "got 'gues'; did you mean 'guess'"),
        ("keydor?rooms=3", "did you mean 'keydoor'"),
        ("gymnasium/", "write it as gymnasium/FrozenLake-v1"),
        ("babyai", "write it as babyai/GoToRedBallNoDists"),
        ("guess/hard", "guess takes nothing after a slash"),
        ("guess/", "guess takes nothing after a slash"),
        ("gymnasim/Taxi-v4", "gymnasium/FrozenLake-v1"),
        ("keydoor?room=3", "got 'room'; did you mean 'rooms'"),
        ("keydoor?rooms=many", "got 'many'; give an integer"),
        ("keydoor?rooms=2.5", "got '2.5'; give an integer"),
        ("keydoor?rooms=true", "got 'true'; give an integer"),
        ("keydoor?dense=2", "got '2'; give true or false"),
        ("babyai/GoToLocal?reward=dense", "got 'dense'; choose from binary, package"),
        ("keydoor?rooms=1&rooms=2", "rooms of 'keydoor?rooms=1&rooms=2': got it twice; give it once"),
        ("keydoor?rooms", "write them as name=value"),
        ("nowhere.py:World", "there is no file nowhere.py"),
        ("no_such_module:World", "there is no module no_such_module"),
        ("quintain.environments.gues:Guess", "there is no module quintain.environments.gues"),
        ("quintain.worlds.guess.game:Gues", "has no Gues; did you mean 'Guess'"),
        ("quintain.worlds.guess.game:WRITTEN", "which is no quintain.Environment"),
        (":World", "write it as file.py:Class"),
        ("", "got ''"),
    ],
)
def test_what_does_not_exist_is_named(spec: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        find(spec)
    assert said in str(raised.value)


def test_a_class_that_is_no_environment_is_refused() -> None:
    with pytest.raises(UsageError, match=r"which is no quintain.Environment"):
        find(str)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_what_breaks_inside_a_users_file_is_shown_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
            find(f"{tmp_path / 'broken.py'}:World")


def test_a_file_that_trains_when_it_is_run_does_not_while_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(
        quintain, "train", lambda *_args, **_fields: seen.append(is_importing()), raising=False
    )
    (tmp_path / "world_in_a_file.py").write_text(
        f"{README_EXAMPLE}\nquintain.train('grpo', environment=Guess)\n"
    )
    (tmp_path / "world_in_a_module.py").write_text((tmp_path / "world_in_a_file.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    find(f"{tmp_path}/world_in_a_file.py:Guess")
    find("world_in_a_module:Guess")
    assert (seen, is_importing()) == ([True, True], False)


def test_a_file_that_breaks_does_not_leave_the_mark_behind(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        find(f"{tmp_path}/breaks.py:World")
    assert not is_importing()


def test_the_program_that_runs_is_not_imported_again(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = ModuleType("__main__")
    vars(program).update(__file__=str(example), Guess=Guess)
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert find(f"{example}:Guess").kind is Guess


def test_a_file_with_one_environment_is_enough(tmp_path: Path) -> None:
    one = "import quintain\n\n\nclass {}(quintain.Environment):\n    pass\n"
    (tmp_path / "single.py").write_text(one.format("Own"))
    assert type(find(f"{tmp_path}/single.py")()).__name__ == "Own"
    (tmp_path / "pair.py").write_text(one.format("First") + one.format("Second"))
    with pytest.raises(UsageError, match=r"a file with 2 environments: name one, as pair.py:First"):
        find(f"{tmp_path}/pair.py")
    (tmp_path / "bare.py").write_text("from quintain import Environment\n")
    with pytest.raises(
        UsageError, match=r"a file with no environment: write a class, and name it, as bare.py:Class"
    ):
        find(f"{tmp_path}/bare.py")


def test_files_of_a_spec_are_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run keeps is found from another folder, too."""
    (tmp_path / "worlds").mkdir()
    for name in ("worlds/cal.py", "grade.py", "shop.json"):
        (tmp_path / name).write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for spec, wanted in (
        ("worlds/cal.py:Cal?n=3", f"{tmp_path}/worlds/cal.py:Cal?n=3"),
        ("mix:guess,grade.py:A@2,none.py:B", f"mix:guess,{tmp_path}/grade.py:A@2,none.py:B"),
        ("tasks:grade.py:A@/x/t.jsonl", f"tasks:{tmp_path}/grade.py:A@/x/t.jsonl"),
        (
            "react+grade.py:run?grade=worlds/cal.py:g",
            f"react+{tmp_path}/grade.py:run?grade={tmp_path}/worlds/cal.py:g",
        ),
        (
            "endpoint?command=python grade.py&grade=grade.py:g",
            f"endpoint?command=python grade.py&grade={tmp_path}/grade.py:g",
        ),
        ("mcp/shop.json", f"mcp/{tmp_path}/shop.json"),
        ("guess?high=8", "guess?high=8"),
        ("package.module:Class", "package.module:Class"),
        ("", ""),
    ):
        assert place_files(spec) == wanted
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b" / "cal.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "a,b")
    assert place_files("cal.py:Cal") == "cal.py:Cal", "such a path could not be told from two parts"
