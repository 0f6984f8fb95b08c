import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import MissingExtra, StoreError
from quintain.store.export import export_parquet
from quintain.store.rows import Recorded
from quintain.store.run import Run
from quintain.types import Action, Failure, Image, Text, ToolCall

parquet: Any = pytest.importorskip("pyarrow.parquet")


def test_the_journal_becomes_a_table(
    run: Run, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.store.export.ROWS_PER_GROUP", 2)
    call = ToolCall(name="guess", arguments={"number": 16})
    turn = dataclasses.replace(
        make().turns[0],
        observation=(Text(text="a\ud800"), Image(data=b"png", media_type="image/png")),
        action=Action(text="go", tool_calls=(call,), error="bad"),
        reward_terms={"format": 0.5},
    )
    rich = dataclasses.replace(make(2), turns=(turn,))
    failed = make(1, outcome=Failure(owner="tool", kind="timeout", message="30 s"))
    run.append([make(0), failed], step=0)
    run.append([rich], step=3, phase="eval")
    assert export_parquet(run, tmp_path / "run.parquet") == 3
    table = parquet.read_table(tmp_path / "run.parquet").to_pylist()
    first, second, third = table
    assert (first["step"], first["phase"], first["task"], first["value"]) == (
        0,
        "train",
        "guess/train/7",
        1.0,
    )
    assert first["turns"][1]["token_ids"] == [17, 2] and first["turns"][1]["prompt_ids"] == [5, 9, 4]
    assert first["turns"][0]["logprobs"] == [-0.1, -0.25]
    assert (second["value"], second["is_success"]) == (None, None)
    assert (second["failure_owner"], second["failure_kind"], second["failure_message"]) == (
        "tool",
        "timeout",
        "30 s",
    )
    (exported,) = third["turns"]
    assert (third["row"], third["step"], third["phase"]) == (3, 3, "eval")
    assert exported["observation"] == "a?" and exported["images"] == [b"png"]
    assert exported["tool_calls"] == '[{"name": "guess", "arguments": {"number": 16}}]'
    assert exported["error"] == "bad" and exported["reward_terms"] == '{"format": 0.5}'
    assert [entry.name for entry in tmp_path.glob("*.parquet*")] == ["run.parquet"]


def test_an_empty_run_is_an_empty_table(run: Run, tmp_path: Path) -> None:
    assert export_parquet(run, tmp_path / "run.parquet") == 0
    assert parquet.read_table(tmp_path / "run.parquet").num_rows == 0


def test_without_pyarrow_the_extra_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtra, match=r'export to Parquet needs the package pyarrow.*pip install -e "\.\[data\]"'
    ):
        export_parquet(run, tmp_path / "run.parquet")


def test_a_folder_that_is_missing_is_named(run: Run, make: Any, tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"exporting in .*/nowhere/run.parquet: .*give a folder that can be written to"
    ):
        export_parquet(run, tmp_path / "nowhere" / "run.parquet")


def test_a_run_that_cannot_be_read_leaves_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(step: int | None = None, phase: str | None = None) -> Iterator[Recorded]:
        raise StoreError("reading: got nothing; try again")

    monkeypatch.setattr(run, "read_rows", broken)
    with pytest.raises(StoreError, match="reading: got nothing"):
        export_parquet(run, tmp_path / "run.parquet")
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]
