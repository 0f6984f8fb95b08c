"""One run of each loop is killed and asked to stop again and again, resumed, and compared with one left alone.

It reads a folder, the number of kills of each loop, a seed and the names of loops (none: all) from its input, and
prints one JSON object. A kill is SIGKILL to all processes of the run; with SIGTERM and SIGINT it is asked to stop. They
come at random moments between two rows of its metrics, and one as soon as the run is there. What must be equal is every
metric but those of a clock, and the SHA-256 of the weights; where episodes end in any order, none is lost or used
twice.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from tests.faults.loops import LOOPS, UNORDERED, arguments
from tests.faults.run_program import curve, digests, forked

import quintain.warm_start.corpus
from quintain.api import train  # loaded before the forks, which share it
from quintain.cli.main import main as run_command
from quintain.store.run import Run

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
DEADLINE = 900.0
"""Seconds after which a process counts as hanging, on however busy a machine."""


def begun(name: str, root: Path) -> int:
    """Train the loop `name` in a new process group, or go on with it, and return its process number."""
    folder = root / "run"
    line = ["resume", str(folder)] if (folder / "run.db").exists() else arguments(name, root)

    def work() -> None:
        os.setsid()
        if status := run_command(line):
            os._exit(status)

    return forked(work, f"{root}.log")


def ended(child: int, folder: Path, *, rows: int | None, rng: random.Random) -> int | None:
    """Wait for the end of `child`, or until the run has `rows` (0: a journal); None: it runs still."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if rows is not None and num_rows(folder) >= rows and (folder / "run.db").exists():
            time.sleep(rng.uniform(0.0, 0.4) if rows else 0.0)
            return None
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"{folder}: still at row {num_rows(folder)} after {DEADLINE:.0f} s")


def num_rows(folder: Path) -> int:
    """Return the number of rows of metrics in `folder`."""
    file = folder / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def struck(child: int, number: signal.Signals, rng: random.Random, folder: Path) -> int:
    """Send signal `number` to `child`, to all of its group where it is a kill, and return the status it ends with."""
    if number == signal.SIGKILL:
        os.killpg(child, number)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.kill(child, number)
    status = ended(child, folder, rows=None, rng=rng)
    assert status is not None
    return status


def killed(name: str, root: Path, kills: int, total: int, seed: int) -> dict[str, Any]:
    """Strike the loop `name` up to `kills` times on its way to `total` rows, and let it end; return what happened."""
    rng, folder = random.Random(f"{name}/{seed}"), root / "run"
    hits: Counter[str] = Counter()
    wrong: list[str] = []
    places = sorted([0, *(rng.randrange(1, max(2, total)) for _ in range(kills - 1))])
    for number, rows in enumerate(places):
        child = begun(name, root)
        status = ended(child, folder, rows=rows, rng=rng)
        if status is not None:  # it was quicker than the signal
            if status:
                wrong.append(f"status {status} by itself")
            break
        sent = SIGNALS[number % len(SIGNALS)]
        status = struck(child, sent, rng, folder)
        hits[sent.name] += 1
        if status not in ((-signal.SIGKILL,) if sent == signal.SIGKILL else (130, 0)):
            wrong.append(f"status {status} after {sent.name}")
    status = ended(begun(name, root), folder, rows=None, rng=rng)
    if status:
        wrong.append(f"status {status} at the end")
    return {"hits": dict(hits), "kills": hits.total(), "wrong": wrong}


def outcome(folder: Path) -> dict[str, Any]:
    """Return what must be equal: the metrics without those of a clock, and the hashes of all weights."""
    found = digests(folder.glob("model*/*.safetensors"))
    return {
        "curve": curve(folder),
        **{str(file.relative_to(folder)): digest for file, digest in found.items()},
    }


def find_open(*folders: Path) -> list[Path]:
    """Return what is in `folders`, and which of them, that others than the owner have rights to."""
    places = [place for folder in folders for place in (folder, *folder.rglob("*"))]
    return [place for place in places if place.stat().st_mode & 0o077]


def differing(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Return where two outcomes differ."""
    if [row["step"] for row in found["curve"]] != [row["step"] for row in expected["curve"]]:
        return ["other steps"]
    pairs = zip(found["curve"], expected["curve"], strict=True)
    rows = [
        f"step {mine['step']}: {key} {mine.get(key)} for {other.get(key)}"
        for mine, other in pairs
        for key in mine.keys() | other.keys()
        if mine.get(key) != other.get(key)
    ]
    files = [
        key
        for key in found.keys() | expected.keys()
        if key != "curve" and found.get(key) != expected.get(key)
    ]
    return [*rows[:5], *(f"weights of {file}" for file in sorted(files))]


def misused(folder: Path, steps: list[int]) -> list[str]:
    """Return which steps are missing, and which episodes were used twice or are not there."""
    with Run.open(folder, writable=False) as run:
        have = {t.id for t in run.trajectories(phase="train")}
        used = Counter(use.episode for _, use in run.uses())
        rows = [int(row["step"]) for row in run.metrics()]
    twice = [name for name, num in used.items() if num > 1]
    found = [f"{len(twice)} episodes were used twice"] if twice else []
    found += ["a step used an episode that is not there"] if not set(used) <= have else []
    return [*found, *(["steps are missing"] if rows != steps else [])]


def tried(name: str, root: Path, kills: int, seed: int) -> dict[str, Any]:
    """Train the loop `name` twice, once under `kills`, and return what differs."""
    started = time.monotonic()
    root.mkdir(parents=True)
    whole, other = root / "whole", root / "killed"
    status = ended(begun(name, whole), whole / "run", rows=None, rng=random.Random(0))
    if status:
        return {"wrong": [f"the run that was left alone: status {status}: {last_line(whole)}"], "kills": 0}
    expected = outcome(whole / "run")
    report = killed(name, other, kills, len(expected["curve"]), seed)
    report["wrong"] += [f"open to others: {place}" for place in find_open(whole / "run", other / "run")]
    if not report["wrong"]:
        steps = [int(row["step"]) for row in expected["curve"]]
        is_free = name in UNORDERED
        report["wrong"] = (
            misused(other / "run", steps) if is_free else differing(outcome(other / "run"), expected)
        )
    if report["wrong"]:
        report["said"] = last_line(other)
    else:
        shutil.rmtree(root)
    return {**report, "rows": len(expected["curve"]), "seconds": round(time.monotonic() - started)}


def last_line(root: Path) -> str:
    """Return what a run said last."""
    lines = Path(f"{root}.log").read_text(errors="replace").splitlines()
    return lines[-1][-500:] if lines else ""


def main() -> None:
    """Do what the input asks."""
    root, kills, seed, *names = (line.strip() for line in sys.stdin)
    torch.set_num_threads(1)
    assert callable(train)
    quintain.warm_start.corpus.NUM_EPISODES = 4
    found = {
        name: tried(name, Path(root) / name.replace(" ", "-"), int(kills), int(seed))
        for name in names or LOOPS
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
