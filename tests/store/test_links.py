"""A run folder in which something leads out of it, or never ends: nothing is read, and nothing elsewhere is touched."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.conftest import trajectory

from quintain.errors import QuintainError, StoreError
from quintain.store.creation import read_settings
from quintain.store.lock import LOCK_FILE, WriterLock, is_locked
from quintain.store.run import Run

PLACES = (
    "config.json", "run.db", "run.db-wal", "run.lock", "metrics.jsonl", "report.html", "checkpoints",
    "checkpoints/step-000000", "checkpoints/step-000000/x", "start", "start/model.safetensors", "engines/main", "notes",
)  # fmt: skip
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda place, other: place.symlink_to(other),
    "a link to nothing": lambda place, other: place.symlink_to(other.with_name("nothing")),
    "a pipe": lambda place, _: os.mkfifo(place),
}


def fill(place: Path) -> None:
    """Write a checkpoint."""
    (place / "x").write_text("state")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of one step, with a file in each of its folders."""
    with Run.create(tmp_path / "run", recipe="r", config={"rate": 0.1}) as run:
        for place in ("start/model.safetensors", "engines/main/x", "report.html", "notes"):
            (run.folder / place).parent.mkdir(parents=True, exist_ok=True)
            (run.folder / place).write_text("of the run")
        run.append([trajectory(0)], step=0)
        run.commit(0, {"a": 0.0})
        run.checkpoint(0, fill)
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    """Return what is in the files of `folder`."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PLACES)
def test_what_leads_elsewhere_is_refused_and_left_alone(
    folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    place, other = folder / name, tmp_path / "elsewhere" / "of the user"
    other.parent.mkdir()
    if place.exists():
        shutil.move(place, other)
    else:
        other.write_text("precious")
    before = contents(other.parent)
    KINDS[kind](place, other)
    for is_writable in (False, True):
        with pytest.raises(QuintainError) as refused:
            Run.open(folder, writable=is_writable, accepts_changes=True)
        said = str(refused.value)
        assert "holds no run" in said or f"got {name}, which is " in said, said
    with pytest.raises(QuintainError):
        read_settings(folder)
    assert contents(other.parent) == before
    assert sorted(tmp_path.iterdir()) == [tmp_path / "elsewhere", folder]


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_that_leads_elsewhere_is_never_opened(tmp_path: Path, kind: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    KINDS[kind](tmp_path / "run" / LOCK_FILE, precious)
    with pytest.raises(StoreError, match=r"run\.lock"):
        WriterLock(tmp_path / "run")
    assert not is_locked(tmp_path / "run")
    assert precious.read_text() == "mine" and not (tmp_path / "nothing").exists()


def test_links_within_a_run_are_let_through(folder: Path) -> None:
    (folder / "wandb" / "run-1").mkdir(parents=True)
    (folder / "wandb" / "latest-run").symlink_to("run-1")
    (folder / "wandb" / "debug.log").symlink_to(folder / "wandb" / "run-1" / "debug.log")
    for is_writable in (False, True):
        with Run.open(folder, writable=is_writable) as run:
            assert run.last_step == 0


@pytest.mark.parametrize("target", ["../../elsewhere", "out", "/"])
def test_a_link_behind_a_link_leads_where_it_ends(folder: Path, target: str) -> None:
    (folder / "notes").unlink()
    (folder / "notes").symlink_to(target)
    if target == "out":
        (folder / "out").symlink_to("..")
    with pytest.raises(StoreError, match="a link that leads out of it"):
        Run.open(folder)
