"""Kills at every I/O operation and a disk that is really full, each in processes of their own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quintain.store import faults

HERE = Path(__file__).parent
SOURCE = Path(faults.__file__).parents[2]
SPACE = ["unshare", "--user", "--map-root-user", "--mount"]
"""Gives a process mounts of its own, without rights on the machine."""


def ran(command: list[str], *lines: str) -> dict[str, Any]:
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        input="\n".join(lines).encode(),
        timeout=90,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize(("scenario", "num_points"), [("train", 25), ("again", 20), ("resume", 7)])
@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_opens_to_the_old_or_the_new_state(
    tmp_path: Path, scenario: str, num_points: int
) -> None:
    report = ran([sys.executable, str(HERE / "crash_program.py")], str(tmp_path), scenario)
    assert report["wrong"] == {}
    assert report["points"] >= num_points


def can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*SPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def test_a_full_disk_loses_nothing_that_was_committed_and_can_be_emptied(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("this machine gives no small disk of its own")
    script = 'mount -t tmpfs -o size=8m tmpfs "$1" && exec "$2" "$3"'
    program = str(HERE / "full_disk_program.py")
    report = ran([*SPACE, "sh", "-c", script, "sh", str(tmp_path), sys.executable, program], str(tmp_path))
    checkpoint, row = report["messages"]
    assert checkpoint.startswith(
        f"writing the checkpoint of step 2 in {tmp_path}/one/checkpoints/step-000002: "
    )
    assert "No space left on device" in checkpoint and "bytes free" in checkpoint
    assert f"{tmp_path}/one/" in row and "bytes free; make room" in row
    assert report["checkpoints"] == ["step-000000", "step-000001"]
    assert report["after"] == [0, 1, 2]
    assert report["last"] >= 1
