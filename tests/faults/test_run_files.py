"""Each file of a run folder is damaged, under a method that reads it: the run goes on as before, or is refused."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from quintain import api
from quintain.cli.main import main
from quintain.errors import QuintainError, StoreError
from quintain.store.run import CHANGED, Run

QUICK: dict[str, Any] = {"model": "micro", "steps": 1, "eval_every": 1, "eval_episodes": 2}
TIMES = ("time", "tokens_per_second", "seconds", "machine/")
"""In the names of metrics that no two runs share."""


def flip(file: Path) -> None:
    """Flip a bit in the middle of `file`."""
    content = bytearray(file.read_bytes() or b"\0")
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file: Path) -> None:
    """Leave the first half of `file`."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def append(file: Path) -> None:
    """Add a line to `file`."""
    file.write_bytes(file.read_bytes() + b"\n{}\n")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit": flip,
    "cut": cut,
    "longer": append,
    "gone": Path.unlink,
}


def learn_from_episodes(root: Path, **lora: Any) -> Path:
    """Train by a method that compares the policy with its start at every step."""
    return api.train(
        "gigpo", environment="guess", demonstrations=4, imitation_epochs=1, tasks=1, group_size=2, kl_coef=0.5,
        max_turn_tokens=8, run="run", root=root, **lora, **QUICK,
    ).folder  # fmt: skip


def learn_an_adapter(root: Path) -> Path:
    """Train LoRA layers, which are kept as an adapter beside the start."""
    return learn_from_episodes(root, lora_rank=2, lora_targets=("q_proj",), keeps_adapter=True)


def learn_from_pairs(root: Path) -> Path:
    """Train by a method that reads its preferences again when it goes on."""
    lines = [{"prompt": f"Say {n}.", "chosen": f"{n}!", "rejected": "no"} for n in range(8)]
    (root / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return api.train(
        "dpo", preferences=str(root / "pairs.jsonl"), batch_size=2, run="run", root=root, **QUICK
    ).folder


@pytest.fixture(scope="module", params=[learn_from_episodes, learn_from_pairs, learn_an_adapter])
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one step, which is to go on, and the file that it learns from."""
    root = tmp_path_factory.mktemp("stopped")
    request.param(root)
    return root


def copied(root: Path, to: Path) -> Path:
    """Return the run of a copy of `root`, whose data lies where it lay."""
    return Path(shutil.copytree(root / "run", to / "run"))


def outcome(run: Path, *, accept_changes: bool = False) -> tuple[str, list[dict[str, Any]]]:
    """Go on with `run` for a step; return the hash of its weights, and its curve without times."""
    api.resume(run, steps=2, accept_changes=accept_changes)
    with Run.open(run, writable=False) as opened:
        rows = [
            {name: value for name, value in row.items() if not any(word in name for word in TIMES)}
            for row in opened.metrics()
        ]
    return sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest(), rows


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_changes_nothing_or_is_refused(stopped: Path, damage: str, tmp_path: Path) -> None:
    expected = outcome(copied(stopped, tmp_path / "whole"))
    refused: list[str] = []
    files = sorted(file for file in (stopped / "run").rglob("*") if file.is_file())
    names = [
        file.relative_to(stopped / "run").as_posix()
        for file in files
        if not file.name.endswith(("-wal", "-shm"))
    ]
    for number, name in enumerate(names):
        if name == "run.db" and damage in ("a bit", "longer"):
            continue  # rows of metrics have no seal of their own: tests/store has the journal
        run = copied(stopped, tmp_path / str(number))
        DAMAGES[damage](run / name)
        try:
            assert outcome(run) == expected, name
        except QuintainError as error:
            assert error.exit_code != 1, name
            refused.append(name)
        shutil.rmtree(run)
    read = {"config.json", "start/config.json", "start/model.safetensors", "start/tokenizer.json"}
    assert read | {name for name in names if name.startswith("adapter/")} <= {*refused}
    assert not {"metrics.jsonl", "report.html", "curve.png"} & {*refused}


@pytest.mark.parametrize("damage", DAMAGES)
def test_data_that_a_resumed_run_reads_is_what_it_was(damage: str, tmp_path: Path) -> None:
    run = learn_from_pairs(tmp_path)
    DAMAGES[damage](tmp_path / "pairs.jsonl")
    with pytest.raises(QuintainError) as refused:
        outcome(run)
    assert refused.value.exit_code != 1


def use(run: Path, to: Path, *, accept_changes: bool = False) -> list[str]:
    """Evaluate, serve and export `run`; return what each came to, ``refused`` where a file of it was."""
    found: list[str] = []

    def evaluate() -> str:
        return str(api.evaluate(run, "guess", episodes=2, accept_changes=accept_changes)[0])

    def serve() -> str:
        with api.serving(run, accept_changes=accept_changes) as served:
            assert served.url
        return "served"

    def export(form: str) -> str:
        words = ["export", str(run), "--to", form, "--out", str(to / form)]
        if status := main([*words, *(["--accept-changes"] if accept_changes else [])]):
            raise StoreError(f"ended with {status}")
        file = to / form / "model.safetensors" if form == "hf" else to / form
        content = file.read_bytes()
        _ = shutil.rmtree(file.parent) if form == "hf" else file.unlink()
        return sha256(content).hexdigest()

    for work in (evaluate, serve, lambda: export("hf"), lambda: export("messages")):
        try:
            found.append(work())
        except QuintainError as error:
            assert error.exit_code != 1
            found.append("refused")
    return found


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_uses_a_run_with_a_damaged_file_does_as_before_or_refuses(damage: str, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    whole = learn_from_episodes(tmp_path)
    expected = use(whole, tmp_path)
    assert "refused" not in expected
    refused: list[str] = []
    for number, name in enumerate(
        ("start/tokenizer.json", "model/model.safetensors", "model/tokenizer.json", "config.json")
    ):
        run = Path(shutil.copytree(whole, tmp_path / str(number)))
        DAMAGES[damage](run / name)
        found = use(run, tmp_path)
        assert all(now in ("refused", before) for now, before in zip(found, expected, strict=True)), name
        refused += [name] if found == ["refused"] * 4 else []
        shutil.rmtree(run)
    assert len(refused) == 4


def test_a_run_that_is_used_with_changes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    run = learn_from_episodes(tmp_path)
    before = use(run, tmp_path)
    (run / "model" / "generation_config.json").write_text("{}")
    assert use(run, tmp_path) == ["refused"] * 4
    capsys.readouterr()
    assert use(run, tmp_path, accept_changes=True) == before
    said = capsys.readouterr().err
    for to in ("evaluating", "serving", "exporting"):
        line = (
            f"note: {to} {run} with files that are not what it wrote: model/generation_config.json (changed)"
        )
        assert line in said


def test_what_is_accepted_is_shown(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(stopped, tmp_path)
    (run / "start" / "generation_config.json").write_text("{}")
    outcome(run, accept_changes=True)
    said = capsys.readouterr().out
    assert "start/generation_config.json (changed)" in said
    assert "start/generation_config.json (changed)" in (run / "report.html").read_text()
    with Run.open(run, writable=False) as opened:
        assert [notice["kind"] for notice in opened.notices()] == [CHANGED]
