"""The commands on a real run, small: train, interrupt, resume, evaluate, check, export, compare."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain import api as launch
from quintain.cli.main import main
from quintain.models.fingerprint import fingerprint
from quintain.models.load import load
from quintain.pipelines.episode_sources import gather
from quintain.store import Run
from quintain.types import as_text

Cli = Callable[..., Any]
SMALL = (
    "--environment",
    "keydoor?rooms=1",
    "--model",
    "micro",
    "--demonstrations",
    "2",
    "--eval-episodes",
    "2",
    "--max-turn-tokens",
    "8",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, each with an evaluation and a checkpoint."""
    root = tmp_path_factory.mktemp("runs")
    argv = (
        "train",
        "sft",
        *SMALL,
        "--steps",
        "2",
        "--eval-every",
        "1",
        "--run",
        "first",
        "--runs",
        str(root),
    )
    assert main(argv) == 0
    return root / "first"


@pytest.fixture
def trained(cli: Cli, finished: Path) -> Path:
    """A copy of `finished` where the commands look for runs."""
    return Path(shutil.copytree(finished, Path("runs/first")))


def test_from_training_to_export(cli: Cli, trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[-1].keys() >= {"eval/success", "eval/low", "eval/high", "time/seconds"}

    assert cli("check", "first").status == 0
    assert json.loads(cli("eval", "first", "--episodes", "2", "--json").out)["num"] == 2
    assert cli("export", "first", "--to", "hf", "--out", "model").status == 0
    assert fingerprint(load("model").model) == fingerprint(load(str(trained / "model")).model)
    assert cli("export", "first", "--to", "messages", "--out", "m.jsonl").status == 0
    assert cli("view", "first", "--static").out.endswith("runs/first/report.html\n")

    shutil.copytree(trained, "runs/second")
    lines = cli("compare", "first", "second").out.splitlines()
    assert lines[2].split("\t")[6:8] == ["2", "+0.0 [+0.0, +0.0]"]


def test_a_run_that_was_interrupted_is_taken_by_its_newest_weights(cli: Cli, trained: Path) -> None:
    last = fingerprint(load(str(trained / "model")).model)
    shutil.rmtree(trained / "model")
    assert fingerprint(launch.policy_of(trained).model) == last
    assert fingerprint(load(str(trained / "start")).model) != last
    assert cli("resume", "first").status == 0
    assert fingerprint(load(str(trained / "model")).model) == last


def test_experts_and_models_are_collected(cli: Cli, trained: Path) -> None:
    argv = ("collect", "keydoor?rooms=1", "--episodes", "2", "--out")
    assert cli(*argv, "expert.jsonl").out == "expert.jsonl: success 100.0 % [34.2, 100.0], 2 episodes\n"
    assert cli(*argv, "random", "--agent", "random", "--split", "eval").status == 0
    assert cli("export", "random", "--to", "messages", "--out", "random.jsonl").status == 0
    found = cli("collect", "sokoban", "--agent", "search?nodes=2000", "--episodes", "2", "--out", "searched")
    assert found.out == "searched: success 100.0 % [34.2, 100.0], 2 episodes\n"
    assert "solved" in cli("data", "searched", "--stage", "solved").out
    refused = cli("collect", "guess", "--agent", "search", "--episodes", "2", "--out", "nothing")
    assert (refused.status, refused.line[:32]) == (2, "a search in guess: got an environm"[:32])
    assert cli(*argv, "model", "--agent", "first").status == 0
    assert "2 episodes" in cli("export", "model", "--to", "parquet", "--out", "model.parquet").out
    assert cli("eval", "model").line.startswith("model of the run model: got a run without one")
    assert cli("eval", "./nothing").line.startswith("evaluating ./nothing: got no environment")


def test_a_model_is_collected_through_another_harness_from_a_task_on(cli: Cli, trained: Path) -> None:
    argv = ("collect", "keydoor?rooms=1", "--agent", "first", "--harness", "searched?size=2&steps=5+choice")
    assert cli(*argv, "--episodes", "2", "--task-offset", "7", "--out", "found").status == 0
    with Run.open(Path("found"), writable=False) as run:
        searches = list(run.trajectories())
        assert (run.config["harness"], run.config["task_offset"]) == (argv[-1], 7)
    assert [t.task.id for t in searches] == ["keydoor/train/7", "keydoor/train/8"]
    assert all(as_text(t.final_observation).startswith("[search end") for t in searches)
    set_of = gather(["found"], Path(), lambda _: pytest.fail("there is no file"))
    assert set_of.origins["found"].harness == argv[-1]
    refused = cli(*argv[:-1], "serched+choice", "--out", "nothing")
    assert (refused.status, "did you mean 'searched'" in refused.line) == (2, True)


@pytest.mark.parametrize(
    ("argv", "status", "line"),
    [
        (["--model", "./nope"], 4, "model './nope': got no such folder; check the path, or give a hub id"),
        (["--environment", "keydor"], 2, "environment: got 'keydor'; did you mean 'keydoor'?"),
        (
            ["--environment", "keydoor?room=1"],
            2,
            "option of 'keydoor?room=1': got 'room'; did you mean 'rooms'?",
        ),
    ],
)
def test_what_a_run_needs_is_looked_for_before_it_is_made(
    cli: Cli, argv: list[str], status: int, line: str
) -> None:
    found = cli("train", "sft", *SMALL, *argv)
    assert (found.status, list(Path().iterdir())) == (status, [])
    assert found.line.startswith(line)


def test_a_run_of_that_name_is_not_replaced_unasked(cli: Cli, trained: Path) -> None:
    found = cli("train", "sft", *SMALL, "--run", "first")
    assert found.status == 2
    assert found.line.startswith("creating the run runs/first: got a run of that name; continue it with")
