"""``quintain train`` and ``quintain resume``: everything wrong is found before anything is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.methods.table import MODULES

Cli = Callable[..., Any]
Launcher = Any
OF_A_RUN = {"schema": 1, "name": "a", "recipe": "test", "created": 0.5, "config": {"steps": 3}}


def settings(launcher: Launcher) -> dict[str, Any]:
    """Return what the one call of the launcher was given."""
    ((command, method, given),) = launcher.calls
    assert (command, method) == ("train", "test")
    return given


def test_defaults_are_left_to_the_method(cli: Cli, method: str, launcher: Launcher) -> None:
    assert cli("train", method).status == 0
    assert settings(launcher) == {"run": "test-1", "root": "runs", "replace": False, "config": {}}


def test_flags_become_typed_values(cli: Cli, method: str, launcher: Launcher) -> None:
    cli(
        "train",
        method,
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
        (["--policy.device", "cuda"], {"policy": {"device": "cuda"}}),
        (["--no-policy.is-frozen"], {"policy": {"is_frozen": False}}),
        (
            [
                "--policies.reward-model.rate=1",
                "--policies.reward_model.is_frozen",
                "--policies.a.device",
                "x",
            ],
            {"policies": {"reward_model": {"rate": 1.0, "is_frozen": True}, "a": {"device": "x"}}},
        ),
    ],
)
def test_ways_to_write_a_flag(
    cli: Cli, method: str, launcher: Launcher, argv: list[str], config: dict[str, object]
) -> None:
    assert cli("train", method, *argv).status == 0
    assert settings(launcher)["config"] == config


def test_a_role_of_a_seat_is_named_after_a_slash(cli: Cli, launcher: Launcher) -> None:
    assert cli("train", "grpo", "--seats.agent/plan", "other").status == 0
    ((*_, given),) = launcher.calls
    assert given["config"] == {"seats": {"agent/plan": "other"}}


def test_name_root_and_replace_are_passed_on(cli: Cli, method: str, launcher: Launcher) -> None:
    cli("train", method, "--run", "mine", "--runs", "elsewhere", "--replace")
    assert settings(launcher) == {"run": "mine", "root": "elsewhere", "replace": True, "config": {}}


def test_a_run_without_a_name_gets_the_first_free_number(cli: Cli, method: str, launcher: Launcher) -> None:
    for name in ("test-1", "test-2", "test-4"):
        Path("runs", name).mkdir(parents=True)
    cli("train", method)
    assert settings(launcher)["run"] == "test-3"


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a\\b", "con", "x" * 200])
def test_a_run_name_with_path_characters_is_refused(
    cli: Cli, method: str, launcher: Launcher, name: str
) -> None:
    found = cli("train", method, "--run", name)
    assert found.status == 2
    assert found.line.startswith("run name: got ")
    assert launcher.calls == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["grop"], "method: got 'grop'; did you mean 'grpo'?, or give a file.py"),
        (["--steps", "3"], "quintain train needs a method first: got '--steps'; choose from "
         f"{', '.join(MODULES)}, test, or give a file.py"),
        (["test", "--stepz", "3"], "flag of quintain train test: got '--stepz'; did you mean '--steps'?"),
        (["test", "--step", "3"], "flag of quintain train test: got '--step'; did you mean '--steps'?"),
        (["test", "--steps", "many"], "--steps: got 'many'; give an integer such as 10"),
        (["test", "--steps", "2.5"], "--steps: got '2.5'; give an integer such as 10"),
        (["test", "--mode", "trun"], "--mode: got 'trun'; did you mean 'turn'?"),
        (["test", "--steps", "0"], "configuration in the command line: steps: got 0; give 1 or more"),
        (["test", "guess"], "quintain train test: got 'guess', which it has no use for; "
         "did you mean '--environment guess'?"),
        (["test", "--config"], "--config needs a value: got nothing; write --config VALUE"),
        (["test", "--config", "c.yaml"], "configuration file: got 'c.yaml'; give a .json or a .toml file"),
        (["test", "--data", "x.jsonl"], "flag of quintain train test: got '--data'; "
         "see `quintain train test --help`"),
        (["test", "--policy.devise", "x"], "flag of quintain train test: got '--policy.devise'; "
         "did you mean '--policy.device'?"),
        (["test", "--policies.critic.rate", "0"], "--policies.critic.rate: got '0'; give a number above 0 such as 0.5"),
        (["test", "--policies.critic.rat", "1"], "flag of quintain train test: got '--policies.critic.rat'; "
         "did you mean '--policies.NAME.rate'?"),
        (["test", "--config", "c.jsonl"], "configuration file: got 'c.jsonl', which holds rows of data, not a "
         "configuration; give a .json or a .toml file"),
        (["test", "--config", "c.toml"], "configuration file: got 'c.toml', which is no file; "
         "check the path"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("method")
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
        ("c.toml", "[policies.critic]\nrate = 1\n[policy]\ndevice = 'x'\n",
         {"policies": {"critic": {"rate": 1}}, "policy": {"device": "x"}}),
    ],
)  # fmt: skip
def test_a_configuration_file(
    cli: Cli, method: str, launcher: Launcher, name: str, text: str, config: dict[str, object]
) -> None:
    Path(name).write_text(text)
    assert cli("train", method, "--config", name).status == 0
    assert settings(launcher)["config"] == config


def test_flags_go_over_the_file(cli: Cli, method: str, launcher: Launcher) -> None:
    Path("c.toml").write_text("steps = 3\nrate = 0.5\n")
    cli("train", method, "--config", "c.toml", "--steps", "5")
    assert settings(launcher)["config"] == {"steps": 5, "rate": 0.5}


def test_flags_go_over_the_tables_of_a_file_key_by_key(cli: Cli, method: str, launcher: Launcher) -> None:
    Path("c.toml").write_text("[policies.critic]\nrate = 0.5\ndevice = 'x'\n")
    cli("train", method, "--config", "c.toml", "--policies.critic.device", "y")
    assert settings(launcher)["config"] == {"policies": {"critic": {"rate": 0.5, "device": "y"}}}


def test_old_names_are_refused_but_for_the_file_of_a_run(cli: Cli, method: str, launcher: Launcher) -> None:
    Path("run.json").write_text(json.dumps({**OF_A_RUN, "config": {"speed": 0.5}}))
    assert cli("train", method, "--config", "run.json").status == 0
    assert [given["config"] for _, _, given in launcher.calls] == [{"rate": 0.5}]
    Path("c.toml").write_text("speed = 0.25")
    found = cli("train", method, "--config", "c.toml")
    assert (found.status, found.line) == (2, "speed in c.toml: got an earlier name; it is called rate now")
    found = cli("train", method, "--speed", "4")
    assert (found.status, found.line) == (2, "--speed: got an earlier name; it is called --rate now")
    assert len(launcher.calls) == 1


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("c.toml", "stpes = 3", "configuration key in c.toml: got 'stpes'; did you mean 'steps'?"),
        ("c.toml", 'steps = "3"', 'steps in c.toml: got "3" (text); '
         "give an integer such as 10"),
        ("c.json", '{"is_fast": 1}', "is_fast in c.json: got 1 (an integer); "
         "give true or false"),
        ("c.toml", "[policy]\nrate = 0", "policy.rate in c.toml: got 0 (an integer); "
         "give a number above 0 such as 0.5"),
        ("c.toml", "[policies.critic]\ndevise = 'x'", "configuration key in c.toml: got 'policies.critic.devise'; "
         "did you mean 'device'?"),
        ("c.toml", "steps = 0", "configuration in c.toml: steps: got 0; give 1 or more"),
        ("c.json", '{"steps": 1, "steps": 2}', "configuration file c.json: got the key 'steps' twice; "
         "correct it"),
        ("c.json", "[1]", "configuration file c.json must hold a table: got [1]; use {…}"),
        ("c.json", '{"steps": NaN}', "steps in c.json: got NaN (a number); "
         "give an integer such as 10"),
        ("c.json", json.dumps({"schema": 1, "name": "a", "recipe": "ppo", "created": 0.5, "config": {}}),
         "configuration file c.json must be one of test: got one of ppo; use that"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_line(
    cli: Cli, method: str, launcher: Launcher, name: str, text: str, line: str
) -> None:
    Path(name).write_text(text)
    found = cli("train", method, "--config", name)
    assert (found.status, found.line) == (2, line)
    assert launcher.calls == []


@pytest.mark.parametrize(
    ("name", "text"), [("c.toml", "steps = "), ("c.json", '{"steps": '), ("c.json", "\x00")]
)
def test_a_broken_file_is_one_line(cli: Cli, method: str, name: str, text: str) -> None:
    Path(name).write_text(text)
    found = cli("train", method, "--config", name)
    assert found.status == 2
    assert found.line.startswith(f"configuration file {name}: got ")


def test_a_file_that_is_not_text_is_one_line(cli: Cli, method: str) -> None:
    Path("c.toml").write_bytes(b"\xff\xfe\x00")
    line = "configuration file c.toml: got byte 0, which is not UTF-8; save as UTF-8"
    assert cli("train", method, "--config", "c.toml").line == line


def test_a_missing_file_names_the_nearest(cli: Cli, method: str) -> None:
    Path("grpo-long.toml").write_text("")
    found = cli("train", method, "--config", "grpo-lnog.toml")
    assert found.line.endswith("which is no file; did you mean 'grpo-long.toml'?")


def test_the_help_of_a_method_documents_its_flags(cli: Cli, method: str) -> None:
    text = " ".join(cli("train", method, "--help").out.split())
    assert "L = 0: a method for tests." in text
    assert "--steps N Steps of training. (an integer, default 10)" in text
    assert "--mode outcome|turn (default outcome)" in text
    assert "100 % made up. (default guess)" in text
    assert "--is-fast [true|false] Whether to hurry. (--no-is-fast for false, default false)" in text
    assert "options of policy: --policy.device TEXT Where it is. (default cpu)" in text
    assert "--policies.NAME.rate X (a number above 0, default 0.5)" in text
    assert "--speed" not in text


def test_help_has_80_columns_and_the_options_of_the_method_before_those_of_all(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("train", "grpo", "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if line and line.endswith(":") and not line.startswith(" ")]
    assert titles[:2] == ["options:", "options of grpo:"] and len(titles) == 3
    text = "\n".join(lines)
    assert "GRPO (arXiv 2402.03300): an episode" in text and text.index("--group-size N") < text.index(
        "sections, each with --help-section NAME"
    )
    assert "--steps N" not in text and "update: how long and how the weights learn\n    --steps" in text
    assert "--policies.…" in text and len(lines) < 90


def test_a_section_has_a_screen_of_its_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = cli("train", "grpo", "--help-section", "update").out
    assert "--steps N" in text and "--group-size" not in text and "--cluster" not in text
    assert cli("train", "grpo", "--help-section=warm_start").out.count("--imitation-") == 2
    whole = cli("train", "grpo", "--help-section", "all").out
    places = [
        whole.index(f"--{name} ") for name in ("chat-template", "environment", "steps", "rollout", "cluster")
    ]
    assert places == sorted(places) and "--group-size" not in whole
    found = cli("train", "grpo", "--help-section", "updates")
    assert (found.status, found.line) == (2, "--help-section: got 'updates'; did you mean 'update'?")
    assert "choose from all, data, evaluation" in cli("train", "grpo", "--help-section").line


def test_the_help_of_train_lists_the_methods(cli: Cli) -> None:
    found = cli("train", "--help")
    assert found.status == 0
    assert "\n  grpo " in found.out
    assert "\nGroups of episodes, no critic:\n" in found.out
    assert (
        "\n  dpo                     makes the preferred of two episodes likelier, against a frozen reference\n"
        in found.out
    )
    assert max(map(len, found.out.splitlines())) <= 101 and all(
        f"\n  {name} " in found.out for name in MODULES
    )
    assert cli("train").status == 2


def test_ctrl_c_says_how_to_go_on(cli: Cli, method: str, launcher: Launcher) -> None:
    launcher.error, launcher.makes = KeyboardInterrupt(), Path("runs/test-1")
    found = cli("train", method)
    assert found.status == 130
    assert found.error == "quintain: interrupted; continue with: quintain resume runs/test-1\n"


def test_ctrl_c_before_the_run_began_says_so(cli: Cli, method: str, launcher: Launcher) -> None:
    launcher.error = KeyboardInterrupt()
    found = cli("train", method)
    assert (found.status, "nothing was written" in found.error) == (130, True)


@pytest.mark.parametrize(("named", "folder"), [("a", "runs/a"), ("runs/a", "runs/a"), ("b", "runs/b")])
def test_resume_takes_a_name_or_a_folder(cli: Cli, launcher: Launcher, named: str, folder: str) -> None:
    Path("runs/a").mkdir(parents=True)
    assert cli("resume", named).status == 0
    assert launcher.calls == [("resume", Path(folder))]


def test_resume_may_learn_in_other_ranks(cli: Cli, launcher: Launcher) -> None:
    Path("runs/a").mkdir(parents=True)
    assert cli("resume", "a", "--learner-ranks", "4").status == 0
    assert launcher.calls == [("resume", Path("runs/a"), {"learner_ranks": 4})]


def test_resume_may_go_on_elsewhere(cli: Cli, launcher: Launcher) -> None:
    Path("runs/a").mkdir(parents=True)
    assert cli("resume", "a", "--cluster", "auto", "--placement", "p.toml").status == 0
    assert cli("resume", "a", "--cluster", "none").status == 0
    assert [settings for _, _, settings in launcher.calls] == [
        {"cluster": "auto", "placement": "p.toml"},
        {"cluster": "", "placement": ""},
    ]


def test_resume_can_be_interrupted_too(cli: Cli, launcher: Launcher) -> None:
    Path("runs/a").mkdir(parents=True)
    launcher.error = KeyboardInterrupt()
    found = cli("resume", "a")
    assert (found.status, found.error) == (
        130,
        "quintain: interrupted; continue with: quintain resume runs/a\n",
    )


def test_a_file_of_tasks_is_a_part_of_the_environment(
    cli: Cli, method: str, launcher: Launcher, tmp_path: Path
) -> None:
    file = tmp_path / "tickets.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}\n', encoding="utf-8")
    assert cli("train", method, "--tasks", str(file)).status == 0
    assert settings(launcher)["config"] == {"environment": f"tasks:@{file}"}
    launcher.calls.clear()
    assert cli("train", method, "--environment", "guess?high=8", "--tasks", str(file)).status == 0
    assert settings(launcher)["config"] == {"environment": f"tasks:guess?high=8@{file}"}
    assert "--tasks FILE" in cli("train", method, "--help").out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("none.jsonl", "there is no such file"),
        ("tickets.txt", "give a number, or a file that ends in .jsonl"),
        ("empty.csv", "got 0 tasks"),
    ],
)
def test_what_is_no_file_of_tasks_is_refused_in_a_line(
    cli: Cli, method: str, tmp_path: Path, given: str, said: str
) -> None:
    (tmp_path / "empty.csv").write_text("prompt\n", encoding="utf-8")
    found = cli("train", method, "--tasks", str(tmp_path / given))
    assert found.status and said in found.line
