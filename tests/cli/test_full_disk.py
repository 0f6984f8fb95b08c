"""A full disk, through the command line: one line, status 6, nothing half-written, and resumed when there is room."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import StoreError
from quintain.learning.saved import START

Cli = Callable[..., Any]
HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
TRAIN = [
    "train", "sft", "--environment", "guess", "--model", "micro", "--run", "one",
    "--steps", "2", "--eval-every", "1", "--eval-episodes", "4", "--demonstrations", "4",
    "--max-turn-tokens", "8",
]  # fmt: skip
SPACE = ["unshare", "--user", "--map-root-user", "--mount"]
"""Gives a process mounts of its own, without rights on the machine."""


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[int], None]]:
    """Let no file grow beyond so many bytes, as on a disk that is full; 0 lifts it."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python keeps what it could write of a module's
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def set_limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size or before[0], before[1]))

    yield set_limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_goes_on_when_there_is_room_again(cli: Cli, limit: Callable[[int], None]) -> None:
    limit(300_000)
    full = cli(*TRAIN)
    assert full.status == StoreError.exit_code
    error = full.error.splitlines()[-1]
    assert error.startswith(
        "quintain: error: writing the checkpoint of step 1 in runs/one/checkpoints/step-000001"
    )
    assert error.endswith("what was committed before is intact (the run is kept: `quintain resume runs/one`)")
    assert "File too large" in error
    assert sorted(path.name for path in Path("runs/one/checkpoints").iterdir()) == ["step-000000"]
    limit(0)
    assert cli("resume", "runs/one").status == 0
    assert steps(Path("runs/one")) == [0, 1, 2]
    assert cli("check", "one").status == 0


def test_a_run_that_could_not_begin_leaves_nothing(cli: Cli, limit: Callable[[int], None]) -> None:
    limit(100_000)
    full = cli(*TRAIN)
    assert full.status == StoreError.exit_code
    error = full.error.splitlines()[-1]
    assert error.startswith("quintain: error: starting the run runs/one: got ")
    assert error.endswith("make room, then start it again")
    assert list(Path("runs").iterdir()) == []


@pytest.mark.parametrize("out", ["data.jsonl", "data"])
def test_episodes_are_collected_whole_or_not_at_all(cli: Cli, limit: Callable[[int], None], out: str) -> None:
    limit(6_000)
    full = cli("collect", "guess", "--episodes", "40", "--out", out)
    assert full.status == StoreError.exit_code
    assert "quintain: error: " in full.error.splitlines()[-1]
    assert list(Path().iterdir()) == []
    limit(0)
    assert cli("collect", "guess", "--episodes", "4", "--out", out).status == 0


def test_what_is_exported_is_whole_or_not_there(cli: Cli, limit: Callable[[int], None]) -> None:
    assert cli(*TRAIN, "--steps", "1").status == 0
    limit(2_000)
    for form, out in (("hf", "out"), ("messages", "out.jsonl"), ("parquet", "out")):
        full = cli("export", "one", "--to", form, "--out", out)
        assert full.status == StoreError.exit_code
        assert [path.name for path in Path().iterdir()] == ["runs"]


def can_mount(folder: Path) -> bool:
    """Whether a process here may have a disk of its own."""
    if shutil.which("unshare") is None:
        return False
    command = [*SPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_a_small_disk_is_filled_and_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_mount(tmp_path):
        pytest.skip("this system lets nobody mount a disk of their own")
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" "$3"'
    program = str(HERE / "full_disk_program.py")
    done = subprocess.run(
        [*SPACE, "sh", "-c", script, "sh", str(tmp_path), sys.executable, program],
        input=str(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["early"] == found["late"] == StoreError.exit_code
    assert found["left"] == ["ballast", "runs"]
    assert (found["resumed"], found["steps"]) == (0, [0, 1, 2])
    errors = [line for line in done.stderr.splitlines() if line.startswith("quintain: error: ")]
    assert len(errors) == 2
    assert errors[0].startswith(
        "quintain: error: creating a run in runs/one: got 'database or disk is full' with "
    )
    assert errors[0].endswith("make room or repair that disk, then start it again: nothing was left behind")
    assert "runs/one" in errors[1] and errors[1].endswith("(the run is kept: `quintain resume runs/one`)")
    assert not (tmp_path / "runs" / "one" / START).exists(), "the disk was the program's own"
