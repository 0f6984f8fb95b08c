"""``quintain check``: what holds is status 0, what does not is the status of its kind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.store import Run
from quintain.types import Failure, Stop, Task, Trajectory

Cli = Callable[..., Any]

BROKEN_WORLD = '''
import quintain


class Broken(quintain.Environment):
    """Never right."""

    def reset(self, task):
        return "go"

    def step(self, action):
        return quintain.StepResult(observation="x", reward=float("nan"))
'''

SLOW_WORLD = '''
import threading
import quintain


class Slow(quintain.Environment):
    """Take your time."""

    def reset(self, task):
        threading.Event().wait(3)
        return "go"
'''


def write_weights(folder: Path) -> None:
    folder.joinpath("weights").write_bytes(b"12")


def contents(folder: Path) -> dict[Path, bytes]:
    """Return what the files of a run hold; SQLite's own side files come and go with readers."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("run.db-")]
    return {path: path.read_bytes() for path in files}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one trajectory and two checkpoints."""
    folder = tmp_path / "runs" / "a"
    trajectory = Trajectory(
        task=Task(id="t", environment="guess", seed=1),
        turns=(),
        outcome=Failure(owner="engine", kind="k", message="m"),
        stop=Stop.FAILURE,
        seed=1,
        group="g",
        index=0,
    )
    with Run.create(folder, recipe="test", config={"environment": "guess"}) as opened:
        for step in (0, 1):
            if step == 0:
                opened.append([trajectory], step=step)
            opened.commit(step, {"train/loss": 1.0})
            opened.checkpoint(step, write_weights)
        opened.finish()
    return folder


def test_a_good_environment_passes(cli: Cli) -> None:
    found = cli("check", "guess", "--episodes", "4", "--json")
    report = json.loads(found.out)
    assert (found.status, report["target"], report["has_passed"]) == (0, "guess", True)
    assert report["measured"]["expert/success"] == 1.0
    assert {row["state"] for row in report["findings"]} <= {"pass", "skip"}


def test_a_probe_takes_no_longer_than_it_was_given(cli: Cli) -> None:
    Path("world.py").write_text(SLOW_WORLD)
    found = cli("check", "world.py:Slow", "--episodes", "1", "--deadline", "1")
    assert found.status == 3 and "took longer than 1 s, in reset" in found.out


def test_a_broken_environment_is_status_3(cli: Cli) -> None:
    Path("world.py").write_text(BROKEN_WORLD)
    found = cli("check", "world.py:Broken", "--episodes", "2")
    assert found.status == 3
    assert "nan" in found.out
    assert found.out.splitlines()[-1].startswith("world.py:Broken: ")
    assert "failed" in found.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("gues", "did you mean 'guess'"),
        ("guess?hihg=3", "guess?hihg=3"),
        ("nowhere.py:X", "no file"),
        ("no.module:X", "no module"),
    ],
)
def test_an_unknown_environment_is_status_2(cli: Cli, spec: str, hint: str) -> None:
    found = cli("check", spec)
    assert found.status == 2
    assert hint in found.line


@pytest.mark.parametrize(("text", "came"), [("x", "'x'"), ("0", "0")])
def test_episodes_must_be_a_positive_integer(cli: Cli, text: str, came: str) -> None:
    found = cli("check", "guess", "--episodes", text)
    assert found.status == 2
    assert found.line.startswith("--episodes must be ")
    assert f"got {came};" in found.line


def test_a_run_is_checked_by_name_or_folder(cli: Cli, run: Path) -> None:
    for target in ("a", str(run), "runs/a"):
        found = cli("check", target)
        assert found.status == 0
        assert "journal\tpass\t1 trajectories" in found.out
        assert "metrics\tpass\t2 steps" in found.out
        assert "step-000001\tpass\tintact to the last byte" in found.out


def test_a_damaged_checkpoint_is_status_6(cli: Cli, run: Path) -> None:
    (run / "checkpoints" / "step-000001" / "weights").write_bytes(b"21")
    found = cli("check", str(run))
    assert found.status == 6
    assert "step-000001\tfail\t" in found.out
    assert "step-000000\tpass\t" in found.out
    assert found.out.splitlines()[-1].endswith("1 of 6 failed")


def test_a_changed_configuration_is_status_6(cli: Cli, run: Path) -> None:
    assert "files\tpass\t" in cli("check", str(run)).out
    config = run / "config.json"
    config.write_text(config.read_text().replace("guess", "shop"))
    found = cli("check", str(run))
    assert found.status == 6
    assert "files\tfail\tnot what the run wrote or began with: config.json (changed)" in found.out


@pytest.mark.parametrize(
    "command",
    ["check", "view", "eval", "resume", "export --to hf --out o", "compare", "label --labeller ann"],
)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"config": ' * 100_000], ids=["lists", "objects"])
def test_a_configuration_that_is_nested_too_deeply_is_status_6(
    cli: Cli, run: Path, command: str, text: str
) -> None:
    (run / "config.json").write_text(text)
    found = cli(*command.split(), str(run))
    assert found.status == 6
    assert "got a broken file (it is nested too deeply to be read); restore it from a copy" in found.line


@pytest.mark.parametrize("steps", ['"x"', "1e400", "[1]", "null"])
def test_steps_that_are_no_number_are_status_6(cli: Cli, run: Path, steps: str) -> None:
    row = json.loads((run / "config.json").read_text())
    text = json.dumps(row | {"config": row["config"] | {"steps": "HERE"}}).replace('"HERE"', steps)
    (run / "config.json").write_text(text)
    found = cli("resume", str(run), "--accept-changes", "--trust-run")
    assert found.status == 6
    assert "which is no whole number; restore config.json and run.db from a copy" in found.line


def test_a_run_without_checkpoints_says_so(cli: Cli) -> None:
    Run.create(Path("runs/b"), recipe="test", config={}).close()
    assert "checkpoints\tskip\tthere is none yet" in cli("check", "b").out


def test_a_broken_model_folder_is_status_4(cli: Cli) -> None:
    Path("m").mkdir()
    Path("m/config.json").write_text("{}")
    found = cli("check", "./m")
    assert found.status == 4
    assert "model\tfail\t" in found.out


@pytest.mark.parametrize("target", ["./nothing", "/no/such/model"])
def test_a_folder_that_is_not_there_is_status_2(cli: Cli, target: str) -> None:
    assert cli("check", target).line == f"quintain check: got {target!r}, which is no folder; check the path"


def test_an_environment_that_is_described_by_a_file_is_no_data(cli: Cli) -> None:
    found = cli("check", "mcp/shop.json")
    assert found.status == 3 and found.out.startswith("probe\tstate\tdetail\nbuilds\tfail\t"), (
        "a world, not data"
    )


def test_a_file_of_conversations_that_is_not_there_and_a_folder_without_any(cli: Cli) -> None:
    Path("chats.jsonl").write_text("{}")
    Path("empty").mkdir()
    for target, line in (
        (
            "chat.jsonl",
            "quintain check: got 'chat.jsonl', and there is no such file; did you mean 'chats.jsonl'?",
        ),
        ("no.parquet", "quintain check: got 'no.parquet', and there is no such file; check the path"),
        (
            "empty",
            "data empty: got a folder without .jsonl, .ndjson, .json, .parquet, .arrow; give one that holds",
        ),
    ):
        found = cli("check", target)
        assert (found.status in (2, 5), found.line.startswith(line)) == (True, True), found.line


def test_checking_changes_nothing(cli: Cli, run: Path) -> None:
    before = contents(run)
    cli("check", str(run))
    assert contents(run) == before


def test_under_load(cli: Cli) -> None:
    found = cli("check", "guess", "--load", "4", "--json")
    report = json.loads(found.out)
    assert (found.status, report["has_passed"]) == (0, True)
    assert [row["name"] for row in report["findings"]] == [
        "instances",
        "failures",
        "starts",
        "steps",
        "memory",
        "closing",
    ]
    assert report["measured"]["episodes"] == 16.0 and report["measured"]["failure_share"] == 0.0
    Path("world.py").write_text(BROKEN_WORLD)
    found = cli("check", "world.py:Broken", "--load", "2")
    assert found.status == 3
    assert "8 of 8 episodes (100.0%); environment/contract 8; the first: broken: reward" in " ".join(
        found.out.split()
    )


def test_conversations_are_counted_and_shown_and_what_cannot_be_used_is_named(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "chats.jsonl"
    good = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    preference = {"prompt": "a", "chosen": "b", "rejected": "c"}
    file.write_text("\n".join(map(json.dumps, [good, preference])))
    found = cli("check", str(file))
    assert found.status == 5
    assert "[prompt] <|user|>hi<|assistant|>\n[trained] ho\n" in found.out
    assert "records\tpass\t2, 1 preferences" in found.out and "user 3, assistant 3" in found.out
    forms = "1 of a conversation (first chats.jsonl line 1), 1 of a preference (first chats.jsonl line 2)"
    assert f"forms\tfail\t{forms}; put them into files of their own" in found.out
    untrained = cli("check", str(file), "--train-on", "tagged", "--show", "0")
    assert "nothing to train\tnote\t3 without an answer to train" in untrained.out
    long = cli("check", str(file), "--max-context", "1", "--json")
    assert long.status == 5 and "3 longer than the context of 1" in long.out
    file.write_text(f"{json.dumps(good)}\n{{\n{json.dumps({**good, 'tools': [{'name': 'x'}]})}")
    broken = cli("check", str(tmp_path / "chats.jsonl"), "--environment", "guess", "--show", "0")
    assert broken.status == 5 and "chats.jsonl line 2: got no JSON" in broken.out
    assert "1 records list other tools than the environment" in broken.out
    file.write_bytes(b"\xe9")
    assert "got the byte 0xe9, which is not UTF-8" in cli("check", str(file)).out
