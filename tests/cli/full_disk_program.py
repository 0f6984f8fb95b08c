"""A run on a disk that becomes full, resumed when there is room; the input names a small disk."""

import json
import os
from pathlib import Path

from quintain.cli.main import main

TRAIN = [
    "train", "sft", "--environment", "guess", "--model", "micro", "--run", "one",
    "--steps", "2", "--eval-every", "1", "--eval-episodes", "4", "--demonstrations", "4",
    "--max-turn-tokens", "8",
]  # fmt: skip


def fill(disk: Path, leave: int) -> Path:
    """Fill `disk` up to the last `leave` bytes and return the file that does."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    ballast.write_bytes(bytes(max(free - leave, 0)))
    return ballast


def run(disk: Path) -> None:
    """Train with room for the start and not for all checkpoints, make room, resume."""
    os.chdir(disk)
    ballast = fill(disk, 50_000)
    early = main(TRAIN)
    left = sorted(path.name for path in disk.rglob("*"))
    ballast.unlink()
    ballast = fill(disk, 600_000)
    late = main(TRAIN)
    ballast.unlink()
    resumed = main(["resume", "one"])
    rows = [json.loads(line)["step"] for line in (disk / "runs/one/metrics.jsonl").read_text().splitlines()]
    print(json.dumps({"early": early, "left": left, "late": late, "resumed": resumed, "steps": rows}))


if __name__ == "__main__":
    run(Path(input()))
