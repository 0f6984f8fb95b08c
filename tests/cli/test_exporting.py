"""``quintain export`` and ``quintain view``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.models.load import load
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.store import Run
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn

Cli = Callable[..., Any]
Launcher = Any


@pytest.fixture
def collected(cli: Cli) -> Path:
    """A run of one episode without a policy."""
    turn = Turn(
        observation=(),
        prompt_ids=(1,),
        completion=Completion(token_ids=(2, 3), logprobs=(-0.5, -0.5), stop="stop"),
        action=Action(text="go"),
    )
    trajectory = Trajectory(
        task=Task(id="t", environment="guess", seed=1),
        turns=(turn,),
        outcome=Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED,
        seed=1,
        group="g",
        index=0,
    )
    folder = Path("runs/a")
    with Run.create(folder, recipe="collect", config={"environment": "guess"}) as run:
        run.append([trajectory], step=0)
        run.commit(0, {"train/success": 1.0})
        run.finish()
    return folder


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--out", "x"], "quintain export needs --to: got nothing; see `quintain export --help`"),
        (["--to", "hf"], "quintain export needs --out: got nothing; see `quintain export --help`"),
        (["--to", "parqet", "--out", "x"], "--to: got 'parqet'; did you mean 'parquet'?"),
        (
            ["--to", "hf", "--out", "x", "--weights", "1"],
            "--weights: got '1' for one model; name others --with it",
        ),
        (
            ["--to", "parquet", "--out", "x", "--with", "a"],
            "--with: got 'a' for parquet; models are merged with --to hf",
        ),
        (
            ["--to", "hf", "--out", "x", "--with", "a", "--weights", "1,b"],
            "--weights: got '1,b'; give numbers, separated by commas",
        ),
        (["--to", "hf", "--out", "runs"], "--out: got 'runs', which exists; choose another name"),
    ],
)
@pytest.mark.usefixtures("collected")
def test_export_refuses_what_is_wrong(cli: Cli, argv: list[str], line: str) -> None:
    found = cli("export", "a", *argv)
    assert (found.status, found.line) == (2, line)


def test_export_of_no_run_names_the_runs_there_are(cli: Cli, collected: Path) -> None:
    found = cli("export", "b", "--to", "parquet", "--out", "x.parquet")
    assert found.status == 2
    assert found.line.endswith("the runs in runs are a")
    assert not Path("x.parquet").exists()


def test_export_to_parquet(cli: Cli, collected: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = cli("export", "a", "--to", "parquet", "--out", "x.parquet")
    assert (found.status, found.out) == (0, "x.parquet: 1 episodes\n")
    assert parquet.read_table("x.parquet").column("task").to_pylist() == ["t"]


def test_view_of_a_run_without_a_policy_writes_its_report(cli: Cli, collected: Path) -> None:
    found = cli("view", "a", "--static")
    assert (found.status, found.out) == (0, "runs/a/report.html\n")
    assert "<html" in Path("runs/a/report.html").read_text()


def test_view_shows_the_tokens_where_the_run_has_a_tokenizer(cli: Cli, collected: Path) -> None:
    train_tokenizer(["go on"], 300).save_pretrained(str(collected / "tokenizer"))
    assert cli("view", "a", "--static").status == 0
    shown = (collected / "report.html").read_text()
    assert 'title="probability 0.607"' in shown


def test_view_of_a_trained_run_concludes_it(
    cli: Cli, collected: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    (collected / "start").mkdir()
    found = cli("view", "a", "--static", "--open")
    assert (found.status, found.out) == (0, "runs/a/report.html\n")
    assert launcher.calls == [("conclude", "a")]
    assert opened == [(collected / "report.html").resolve().as_uri()]


@pytest.mark.parametrize("has_start", [True, False])
def test_view_of_a_run_that_cannot_be_written_to_shows_what_is_there(
    cli: Cli, collected: Path, monkeypatch: pytest.MonkeyPatch, has_start: bool
) -> None:
    if has_start:
        (collected / "start").mkdir()
    before = sorted(collected.rglob("*"))
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("quintain.store.files.write_file", lambda *_: pytest.fail("something was written"))
    found = cli("view", "a", "--static")
    assert found.status == 0 and "runs/a cannot be written to, so that there is no new report" in found.error
    assert sorted(collected.rglob("*")) == before, "sqlite made no file beside the journal"


def test_view_of_no_run_is_status_2(cli: Cli) -> None:
    assert cli("view", "nothing", "--static").status == 2


def test_the_models_of_runs_from_one_start_become_one(cli: Cli) -> None:
    tokenizer = train_tokenizer(["left right north south"] * 3)
    models = [build_tiny(tokenizer, size="micro", seed=seed) for seed in (1, 2)]
    for name, model in zip("ab", models, strict=True):
        with Run.create(Path("runs") / name, recipe="grpo", config={"environment": "guess"}) as run:
            save(model, tokenizer, run.folder / "model")
            run.finish()
    found = cli("export", "a", "--with", "b", "--weights", "0.75,0.25", "--to", "hf", "--out", "both")
    assert found.status == 0 and found.out.endswith("parameters, the mean of 2 models\n")
    parts = [m.state_dict()["model.embed_tokens.weight"] for m in (*models, load("both").model)]
    assert torch.allclose(parts[2], 0.75 * parts[0] + 0.25 * parts[1])
    equal = cli("export", "a", "--with", "b", "--to", "hf", "--out", "equal")
    assert equal.status == 0
    halves = load("equal").model.state_dict()["model.embed_tokens.weight"]
    assert torch.allclose(halves, 0.5 * parts[0] + 0.5 * parts[1])
    other = train_tokenizer(["take the red key"] * 3)
    with Run.create(Path("runs") / "c", recipe="grpo", config={"environment": "guess"}) as run:
        save(build_tiny(other, size="micro", seed=1), other, run.folder / "model")
        run.finish()
    refused = cli("export", "a", "--with", "c", "--to", "hf", "--out", "none")
    assert refused.status == 2 and refused.line.endswith(
        "whose tokenizer is another; merge runs with one start"
    )
    assert not Path("none").exists()
