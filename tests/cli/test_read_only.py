"""A run on a disk that is only read: whatever reads it works, and whatever would write says so in one line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.read_only_program import READS, WRITES
from tests.cli.test_full_disk import HERE, SOURCE, SPACE, TRAIN

from quintain.cli.main import main
from quintain.errors import StoreError

MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
"""Makes a disk of a folder that is only read, by root too."""


def can_mount(folder: Path) -> bool:
    """Whether a process here may have such a disk."""
    command = [*SPACE, "sh", "-c", MOUNT, "sh", str(folder)]
    return shutil.which("unshare") is not None and not subprocess.run(command, capture_output=True).returncode


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_that_reads_a_run_needs_no_place_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    out.mkdir()
    if not can_mount(disk):
        pytest.skip("this system lets nobody have mounts of their own")
    assert main([*TRAIN, "--runs", str(disk / "runs")]) == 0
    shutil.copytree(disk / "runs" / "one", disk / "runs" / "two")
    before = {file: file.read_bytes() for file in disk.rglob("*") if file.is_file()}
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    program = str(HERE / "read_only_program.py")
    done = subprocess.run(
        [*SPACE, "sh", "-c", f'{MOUNT} && exec "$2" "$3"', "sh", str(disk), sys.executable, program],
        input=f"{disk}\n{out}\n",
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert not {command: found[command] for command in READS if found[command][0]}
    assert "cannot be written to, so that there is no new report" in found["view one"][2]
    assert "held out" in found["view one"][1]
    assert not {
        command: (status, error)
        for command, (status, _, error) in found.items()
        if command in WRITES and not (status == StoreError.exit_code and is_of_the_disk(error))
    }
    assert {file: file.read_bytes() for file in disk.rglob("*") if file.is_file()} == before


def is_of_the_disk(error: str) -> bool:
    """Whether the last line that a command wrote says that the disk is only read."""
    return error.splitlines()[-1].startswith("quintain: error: ") and "ead-only file system" in error
