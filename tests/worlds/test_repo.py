from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import cast

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import SandboxError, UsageError
from quintain.safety.isolation import find_fault
from quintain.types import Action, StepResult, ToolCall
from quintain.worlds.repo import box as repo_box
from quintain.worlds.repo.box import RepoBox, is_right, open_sandbox, report
from quintain.worlds.repo.game import Repo
from quintain.worlds.repo.plan import (
    TEMPLATES,
    draw_hidden_cases,
    draw_plan,
    files,
    module_text,
    repair,
    right_files,
)
from quintain.worlds.repo.template import Piece, draw_cases, draw_piece, lines_of

pytestmark = pytest.mark.skipif(bool(find_fault()), reason=find_fault())
PIECE = Piece(
    template="price", name="total", arguments=("count", "each"), constants=(("k", 5), ("cut", 2)), bug=1
)


@pytest.fixture
def world() -> Iterator[Repo]:
    repo = Repo()
    yield repo
    repo.close()


def do(world: Repo, name: str, **arguments: str) -> StepResult:
    return advance(world, tool_action(name, **arguments))


def mended(world: Repo) -> dict[str, str]:
    """Begin the first task and return the modules as they should be."""
    begin(world, world.task("train", 0))
    return right_files(world.snapshot()[0])


def test_a_function_is_written_by_value() -> None:
    template = TEMPLATES["price"]
    assert lines_of(template, PIECE, PIECE.bug) == (
        "def total(count, each):",
        '    """Return the price of count things at each each; from 5 things on, 2 less in all."""',
        "    total = count * each",
        "    if count > 5:",
        "        total -= 2",
        "    return total",
    )
    assert lines_of(template, PIECE, -1)[3] == "    if count >= 5:"
    cases = draw_cases(template, PIECE, Random(0))
    assert [given[0] for given, _ in cases][:2] == [5, 4]
    assert all(result == given[0] * given[1] - (2 if given[0] >= 5 else 0) for given, result in cases)


def test_every_function_is_right_and_every_bug_shows() -> None:
    """In the sandbox, the texts against the second implementation: every template, every bug, several draws."""
    rng, texts, wanted, expected = (
        Random(0),
        dict[str, str](),
        list[list[object]](),
        list[tuple[str, object]](),
    )
    broken: set[str] = set()
    for key, template in TEMPLATES.items():
        for bug in range(-1, len(template.bugs)):
            for _ in range(2):
                piece = replace(draw_piece(key, template, rng, is_broken=False), bug=bug)
                module = f"{key}_{len(texts)}"
                right, wrong = lines_of(template, piece, -1), lines_of(template, piece, bug)
                assert sum(a != b for a, b in zip(right, wrong, strict=True)) == (bug >= 0), (key, bug)
                texts[f"{module}.py"] = "\n".join(wrong) + "\n"
                broken |= {module} if bug >= 0 else set()
                for given, result in draw_cases(template, piece, rng):
                    wanted.append([module, piece.name, given])
                    expected.append((module, result))
    python = open_sandbox()
    try:
        python.put(texts=texts, wanted=wanted)
        python.run("outcome = apart(calls, texts, wanted)")
        given = python.get("outcome")
    finally:
        python.close()
    failing = {
        module for (module, result), value in zip(expected, given, strict=True) if not is_right(value, result)
    }
    assert failing == broken


def test_thousands_of_tasks_and_none_in_both_splits() -> None:
    rng = Random(0)
    plans = [draw_plan(rng, modules=1, functions=2, bugs=1) for _ in range(600)]
    assert len({repr(files(plan)) for plan in plans}) == 600
    world = Repo()
    shown: dict[str, set[str]] = {"train": set(), "eval": set()}
    for split in ("train", "eval"):
        for index in range(30):
            begin(world, world.task(split, index))
            shown[split].add(repr(world.snapshot()[1]))
    assert len(shown["train"]) == len(shown["eval"]) == 30 and not shown["train"] & shown["eval"]


def test_the_expert_mends_everything() -> None:
    for world in (Repo(), Repo(modules=2, functions=3, bugs=3, report="vague", reward="dense", noise=1)):
        episode = play(world, world.task("train", 1), expert)
        assert episode.is_success and episode.total == 1
        world.close()


def test_an_episode_in_words(world: Repo) -> None:
    first = begin(world, world.task("train", 0))
    plan = world.snapshot()[0]
    [(module, piece)] = plan.broken
    assert first == f"{piece.name} in {module}.py is wrong. Files: {module}.py, test_{module}.py."
    tested = do(world, "run_tests").observation
    assert isinstance(tested, str)
    assert (
        tested.startswith(f"1 of 2 tests pass.\nFAILED test_{piece.name}: {piece.name}(")
        and ", got " in tested
    )
    assert do(world, "list_files").observation == f"{module}.py, test_{module}.py"
    assert do(world, "read_file", path=f"{module}.py").observation == module_text(
        plan.modules[0][1], is_right=False
    )
    old, new = repair(files(plan)[f"{module}.py"], plan, module) or ("", "")
    assert do(world, "replace", path=f"{module}.py", old=old, new=new).observation == f"Changed {module}.py."
    assert do(world, "run_tests").observation == "2 of 2 tests pass."
    last = do(world, "submit")
    assert (last.observation, last.reward, last.is_success) == ("All hidden tests pass.", 1.0, True)


def test_refused_calls_change_nothing(world: Repo) -> None:
    begin(world, world.task("train", 0))
    key = world.state_key()
    for name, arguments, why in (
        ("read_file", {"path": "x.py"}, "there is no file 'x.py'; files: "),
        ("read_file", {"path": "../../etc/passwd"}, "there is no file"),
        ("replace", {"path": "x.py", "old": "a", "new": "b"}, "there is no file"),
        ("write_file", {"path": "../x.py", "text": ""}, "'../x.py' is no name for a file"),
        ("write_file", {"path": "a/b.py", "text": ""}, "is no name for a file"),
        ("write_file", {"path": "x.py", "text": "x" * 30_000}, "20000 letters at most"),
    ):
        result = do(world, name, **arguments)
        assert isinstance(result.observation, str) and why in result.observation and not result.is_valid
    name = next(iter(dict(world.snapshot()[1])))
    for old, new, why in (("", "x", "stands 0 times"), ("e", "x", " times in "), ("def ", "", " times in ")):
        assert why in str(do(world, "replace", path=name, old=old, new=new).observation)
    assert "20000 letters" in str(
        do(world, "replace", path=name, old=dict(world.snapshot()[1])[name], new="x" * 30_000).observation
    )
    assert not advance(world, Action(tool_calls=(ToolCall(name="submit", arguments={"now": 1}),))).is_valid
    assert world.state_key() == key


CHEATS = {
    "tests deleted": {"test_{m}.py": ""},
    "tests that always pass": {"test_{m}.py": "def test_all():\n    pass\n"},
    "files that run by themselves": {
        "conftest.py": "import os; os._exit(0)\n",
        "sitecustomize.py": "import os; os._exit(0)\n",
        "json.py": "def dumps(*_, **__): return '[]'\n",
    },
    "an exit": {"{m}.py": "import os; os._exit(0)\n"},
    "equal to everything": {
        "{m}.py": "class E(int):\n    def __eq__(self, other): return True\n"
        "def __getattr__(name):\n    return lambda *a: E()\n"
    },
    "a forged result": {
        "{m}.py": "import os\nfor n in range(3, 20):\n    try: os.write(n, b'[[1], [1]]')\n    except OSError: pass\n"
        "os._exit(0)\n"
    },
    "a patched grader": {
        "{m}.py": "import sys, json\n"
        "json.dumps = lambda *a, **k: '[' + ','.join('[true]' for _ in range(12)) + ']'\n"
        "def __getattr__(name):\n    return lambda *a: True\n"
    },
    "a killed parent": {"{m}.py": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"},
    "no module": {"{m}.py": ""},
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_nothing_but_right_code_pays(cheat: str, world: Repo) -> None:
    begin(world, world.task("train", 3))
    plan = world.snapshot()[0]
    module = plan.modules[0][0]
    for name, text in CHEATS[cheat].items():
        assert do(world, "write_file", path=name.replace("{m}", module), text=text).is_valid
    result = do(world, "submit")
    assert (result.observation, result.reward, result.is_success) == ("Some hidden tests fail.", 0.0, False)


def test_the_answers_never_enter_a_box(world: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in mended(world).items():
        do(world, "write_file", path=name, text=f"{text}\n")
    told: list[dict[str, object]] = []

    class Listening(RepoBox):
        def _ask(self, call: str, **objects: object) -> tuple[str, object]:
            told.append(objects)
            return super()._ask(call, **objects)

    monkeypatch.setattr("quintain.worlds.repo.game.RepoBox", Listening)
    assert do(world, "submit").reward == 1
    [objects] = told
    cases = draw_hidden_cases(world.snapshot()[0])
    assert objects["wanted"] == [[case.module, case.function, case.arguments] for case in cases]
    assert objects.keys() == {"files", "wanted"} and list(cast("dict[str, str]", objects["files"])) == [
        f"{world.snapshot()[0].modules[0][0]}.py"
    ]


def test_what_was_right_must_stay_right() -> None:
    world = Repo(reward="dense", functions=3, bugs=2)
    right = mended(world)
    plan = world.snapshot()[0]
    [(module, pieces)] = plan.modules
    other = next(piece for piece in pieces if piece.bug < 0)
    spoiled = right[f"{module}.py"].replace(f"def {other.name}(", f"def {other.name}_gone(")
    do(world, "write_file", path=f"{module}.py", text=spoiled)
    assert do(world, "submit").reward == 0  # two bugs mended, one function broken
    world = Repo(reward="dense", functions=2, bugs=2)
    mended(world)
    advance(world, world.expert_action())
    advance(world, world.expert_action())
    advance(world, world.expert_action())
    half = do(world, "submit")
    assert (half.reward, half.is_success) == (0.5, False)
    world.close()


def test_tests_that_hang_or_end_the_process_are_told(world: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(world, world.task("train", 0))
    name = f"{world.snapshot()[0].modules[0][0]}.py"
    do(world, "write_file", path=name, text="import os; os._exit(3)")
    assert do(world, "run_tests").observation == (
        "The tests were stopped: they took too long, used too much memory or ended the process."
    )
    do(world, "write_file", path=name, text="def f(:")
    assert "SyntaxError" in str(do(world, "run_tests").observation)
    monkeypatch.setattr(repo_box, "SECONDS", 0.8)
    world.close()
    do(world, "write_file", path=name, text="import time; time.sleep(60)")
    assert do(world, "run_tests").observation == "The tests were stopped: they took longer than 20 s."
    monkeypatch.undo()
    do(world, "write_file", path=name, text="x = 1")
    assert str(do(world, "run_tests").observation).startswith("0 of 1 tests pass.")


def test_a_report_of_anything() -> None:
    assert report([2, []]) == "2 of 2 tests pass."
    assert report([0, [["test_a", "x"]]]) == "0 of 1 tests pass.\nFAILED test_a: x"
    assert report(None).startswith(report([1]) and "The tests were stopped")
    assert len(report([0, [["t", "x" * 5_000]]])) < 1_000
    assert [is_right([1], 1), is_right([True], 1), is_right([2.0], 2), is_right([], 1), is_right(7, 7)] == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_mistakes_are_valid_actions(world: Repo) -> None:
    begin(world, world.task("train", 0))
    kinds = {world.mistaken_action(Random(seed)).tool_calls[0].name for seed in range(20)}
    assert kinds == {"submit", "write_file", "replace"}
    for seed in range(8):
        begin(world, world.task("train", 0))
        assert advance(world, world.mistaken_action(Random(seed))).is_valid
    act = noisy(1.0)
    begin(world, world.task("train", 0))
    assert act(world, Random(0), ("",)) != world.expert_action()


def test_the_expert_goes_on_after_mistakes(world: Repo) -> None:
    for text in ("", "pass\n"):
        begin(world, world.task("train", 1))
        name = f"{world.snapshot()[0].modules[0][0]}.py"
        do(world, "write_file", path=name, text=text)
        last = [advance(world, world.expert_action()) for _ in range(4)][-1]
        assert last.is_success


def test_without_a_sandbox_there_is_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise SandboxError("running code in a sandbox needs bwrap: it is not installed; install it")

    monkeypatch.setattr("quintain.safety.isolation.require", missing)
    with pytest.raises(SandboxError, match="needs bwrap"):
        Repo()


@pytest.mark.parametrize(
    "options", [{"modules": 0}, {"functions": 0}, {"bugs": 3}, {"noise": -1}, {"functions": 99}]
)
def test_impossible_options(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="repo: got "):
        Repo(**options)  # pyright: ignore[reportArgumentType]
