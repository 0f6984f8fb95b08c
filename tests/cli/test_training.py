"""``quintain train`` and ``quintain resume``: everything wrong is found before anything is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.methods.names import RECIPES

Cli = Callable[..., Any]
Launcher = Any
OF_A_RUN = {"schema": 1, "name": "a", "recipe": "test", "created": 0.5, "config": {"steps": 3}}


def settings(launcher: Launcher) -> dict[str, Any]:
    """Return what the one call of the launcher was given."""
    ((command, recipe, given),) = launcher.calls
    assert (command, recipe) == ("train", "test")
    return given


def test_defaults_are_left_to_the_recipe(cli: Cli, recipe: str, launcher: Launcher) -> None:
    assert cli("train", recipe).status == 0
    assert settings(launcher) == {"run": "test-1", "root": "runs", "replace": False, "config": {}}


def test_flags_become_typed_values(cli: Cli, recipe: str, launcher: Launcher) -> None:
    cli(
        "train",
        recipe,
        "--steps",
        "3",
        "--rate=1e-4",
        "--is-fast",
        "--mode",
        "turn",
        "--environment",
        "keydoor",
    )
    expected = {"steps": 3, "rate": 1e-4, "is_fast": True, "mode": "turn", "environment": "keydoor"}
    assert settings(launcher)["config"] == expected


@pytest.mark.parametrize(
    ("argv", "config"),
    [
        (["--is-fast", "false"], {"is_fast": False}),
        (["--no-is-fast"], {"is_fast": False}),
        (["--is_fast"], {"is_fast": True}),
        (["--rate", "-1e-3"], {"rate": -1e-3}),
        (["--rate", "-.5"], {"rate": -0.5}),
        (["--steps", "3", "--steps", "4"], {"steps": 4}),
    ],
)
def test_ways_to_write_a_flag(
    cli: Cli, recipe: str, launcher: Launcher, argv: list[str], config: dict[str, object]
) -> None:
    assert cli("train", recipe, *argv).status == 0
    assert settings(launcher)["config"] == config


def test_name_root_and_replace_are_passed_on(cli: Cli, recipe: str, launcher: Launcher) -> None:
    cli("train", recipe, "--run", "mine", "--runs", "elsewhere", "--replace")
    assert settings(launcher) == {"run": "mine", "root": "elsewhere", "replace": True, "config": {}}


def test_a_run_without_a_name_gets_the_first_free_number(cli: Cli, recipe: str, launcher: Launcher) -> None:
    for name in ("test-1", "test-2", "test-4"):
        Path("runs", name).mkdir(parents=True)
    cli("train", recipe)
    assert settings(launcher)["run"] == "test-3"


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a\\b", "con", "x" * 200])
def test_a_run_name_with_path_characters_is_refused(
    cli: Cli, recipe: str, launcher: Launcher, name: str
) -> None:
    found = cli("train", recipe, "--run", name)
    assert found.status == 2
    assert found.line.startswith("run name: got ")
    assert launcher.calls == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["grop"], "recipe: got 'grop'; did you mean 'grpo'?"),
        (["--steps", "3"], "quintain train needs a recipe first: got '--steps'; choose from "
         f"{', '.join(RECIPES)}, test"),
        (["test", "--stepz", "3"], "flag of quintain train test: got '--stepz'; did you mean '--steps'?"),
        (["test", "--step", "3"], "flag of quintain train test: got '--step'; did you mean '--steps'?"),
        (["test", "--steps", "many"], "--steps must be an integer: got 'many'; give an integer such as 10"),
        (["test", "--steps", "2.5"], "--steps must be an integer: got '2.5'; give an integer such as 10"),
        (["test", "--mode", "trun"], "--mode must be 'outcome' or 'turn': got 'trun'; did you mean 'turn'?"),
        (["test", "--steps", "0"], "configuration in the command line: steps: got 0; give 1 or more"),
        (["test", "guess"], "quintain train test: got 'guess', which it has no use for; "
         "see `quintain train test --help`"),
        (["test", "--config"], "--config needs a value: got nothing; write --config VALUE"),
        (["test", "--config", "c.yaml"], "configuration file: got 'c.yaml'; give a .json or a .toml file"),
        (["test", "--config", "c.toml"], "configuration file: got 'c.toml', which is no file; "
         "check the path"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("recipe")
def test_what_is_wrong_is_one_line(cli: Cli, launcher: Launcher, argv: list[str], line: str) -> None:
    found = cli("train", *argv)
    assert (found.status, found.out, found.line) == (2, "", line)
    assert launcher.calls == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "config"),
    [
        ("c.toml", 'steps = 3\nrate = 1\nmode = "turn"\n', {"steps": 3, "rate": 1.0, "mode": "turn"}),
        ("c.json", '{"steps": 3, "is_fast": true}', {"steps": 3, "is_fast": True}),
        ("c.json", json.dumps(OF_A_RUN), {"steps": 3}),
    ],
)  # fmt: skip
def test_a_configuration_file(
    cli: Cli, recipe: str, launcher: Launcher, name: str, text: str, config: dict[str, object]
) -> None:
    Path(name).write_text(text)
    assert cli("train", recipe, "--config", name).status == 0
    assert settings(launcher)["config"] == config


def test_flags_go_over_the_file(cli: Cli, recipe: str, launcher: Launcher) -> None:
    Path("c.toml").write_text("steps = 3\nrate = 0.5\n")
    cli("train", recipe, "--config", "c.toml", "--steps", "5")
    assert settings(launcher)["config"] == {"steps": 5, "rate": 0.5}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("c.toml", "stpes = 3", "configuration key in c.toml: got 'stpes'; did you mean 'steps'?"),
        ("c.toml", 'steps = "3"', 'steps in c.toml must be an integer: got "3" (text); '
         "give an integer such as 10"),
        ("c.json", '{"is_fast": 1}', "is_fast in c.json must be true or false: got 1 (an integer); "
         "give true or false"),
        ("c.toml", "steps = 0", "configuration in c.toml: steps: got 0; give 1 or more"),
        ("c.json", '{"steps": 1, "steps": 2}', "configuration file c.json: got the key 'steps' twice; "
         "correct it"),
        ("c.json", "[1]", "configuration file c.json must hold a table: got [1]; use {…}"),
        ("c.json", '{"steps": NaN}', "steps in c.json must be an integer: got NaN (a number); "
         "give an integer such as 10"),
        ("c.json", json.dumps({"schema": 1, "name": "a", "recipe": "ppo", "created": 0.5, "config": {}}),
         "configuration file c.json must be one of test: got one of ppo; use that"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_line(
    cli: Cli, recipe: str, launcher: Launcher, name: str, text: str, line: str
) -> None:
    Path(name).write_text(text)
    found = cli("train", recipe, "--config", name)
    assert (found.status, found.line) == (2, line)
    assert launcher.calls == []


@pytest.mark.parametrize(
    ("name", "text"), [("c.toml", "steps = "), ("c.json", '{"steps": '), ("c.json", "\x00")]
)
def test_a_broken_file_is_one_line(cli: Cli, recipe: str, name: str, text: str) -> None:
    Path(name).write_text(text)
    found = cli("train", recipe, "--config", name)
    assert found.status == 2
    assert found.line.startswith(f"configuration file {name}: got ")


def test_a_file_that_is_not_text_is_one_line(cli: Cli, recipe: str) -> None:
    Path("c.toml").write_bytes(b"\xff\xfe\x00")
    assert cli("train", recipe, "--config", "c.toml").line.startswith(
        "configuration file c.toml: got 'utf-8' codec"
    )


def test_a_missing_file_names_the_nearest(cli: Cli, recipe: str) -> None:
    Path("grpo-long.toml").write_text("")
    found = cli("train", recipe, "--config", "grpo-lnog.toml")
    assert found.line.endswith("which is no file; did you mean 'grpo-long.toml'?")


def test_the_help_of_a_recipe_documents_its_flags(cli: Cli, recipe: str) -> None:
    text = " ".join(cli("train", recipe, "--help").out.split())
    assert "L = 0: a recipe for tests." in text
    assert "--steps N Steps of training. (an integer, default 10)" in text
    assert "--mode outcome|turn (default outcome)" in text
    assert "100 % made up. (default guess)" in text
    assert "--no-is-fast" in text


def test_the_help_of_train_lists_the_recipes(cli: Cli) -> None:
    found = cli("train", "--help")
    assert found.status == 0
    assert "\n  grpo " in found.out
    assert "2305.18290" in found.out
    assert cli("train").status == 2


def test_ctrl_c_says_how_to_go_on(cli: Cli, recipe: str, launcher: Launcher) -> None:
    launcher.error, launcher.makes = KeyboardInterrupt(), Path("runs/test-1")
    found = cli("train", recipe)
    assert found.status == 130
    assert found.error == "quintain: interrupted; continue with: quintain resume runs/test-1\n"


def test_ctrl_c_before_the_run_began_says_so(cli: Cli, recipe: str, launcher: Launcher) -> None:
    launcher.error = KeyboardInterrupt()
    found = cli("train", recipe)
    assert (found.status, "nothing was written" in found.error) == (130, True)


@pytest.mark.parametrize(("named", "folder"), [("a", "runs/a"), ("runs/a", "runs/a"), ("b", "runs/b")])
def test_resume_takes_a_name_or_a_folder(cli: Cli, launcher: Launcher, named: str, folder: str) -> None:
    Path("runs/a").mkdir(parents=True)
    assert cli("resume", named).status == 0
    assert launcher.calls == [("resume", Path(folder))]


def test_resume_can_be_interrupted_too(cli: Cli, launcher: Launcher) -> None:
    Path("runs/a").mkdir(parents=True)
    launcher.error = KeyboardInterrupt()
    found = cli("resume", "a")
    assert (found.status, found.error) == (
        130,
        "quintain: interrupted; continue with: quintain resume runs/a\n",
    )
