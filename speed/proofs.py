"""What proofs on a real model share: runs as processes, what they solve, and differences over seeds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from quintain.eval.statistics import mcnemar
from quintain.store import Run
from quintain.types import Score

CLI = ("-m", "quintain.cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean of paired differences over seeds, its 95 % interval, and Student's one-sided chance of it or more."""

    mean: float
    low: float
    high: float
    chance: float
    num: int

    @classmethod
    def over(cls, differences: Sequence[float]) -> Difference:
        """Return that of two `differences` or more, one for each seed."""
        num, mean = len(differences), fmean(differences)
        error = max(stdev(differences) / num**0.5, 1e-12)
        half = float(student.ppf(0.975, num - 1)) * error
        return cls(
            mean=mean, low=mean - half, high=mean + half, chance=float(student.sf(mean / error, num - 1)), num=num
        )  # fmt: skip

    def __str__(self) -> str:
        """Say it in points."""
        interval = f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"
        return f"{100 * self.mean:+.1f} points {interval}, one-sided p = {self.chance:.2g}, {self.num} seeds"

    def is_shown(self, least: float, level: float) -> bool:
        """Whether it is `least` or more, by a chance below `level`."""
        return self.chance < level and self.mean >= least


def run_child(words: Sequence[str], log: Path) -> tuple[int, float]:
    """Run Python with `words`, in one thread, all it says in `log`; return exit status and largest memory in GiB."""
    with log.open("a", encoding="utf-8") as said:
        threads = {**os.environ, "OMP_NUM_THREADS": "1"}  # noqa: TID251 - a child like this
        child = subprocess.Popen(
            [sys.executable, *words], env=threads, stdout=said, stderr=said, stdin=subprocess.DEVNULL
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, used.ru_maxrss / 1024**2


def train_once(folder: Path, new: Sequence[str]) -> bool:
    """Train the run in `folder` unless that is done; return whether its model is there.

    One that was broken off goes on; else it begins with the words `new` of ``quintain``.
    """
    if not (folder / "model").is_dir():
        log = folder.parent / f"{folder.name}.log"
        words = ["resume", str(folder)] if folder.is_dir() else new
        status, _ = run_child([*CLI, *words], log)
        print(f"{folder.name}: {f'exit status {status}, see {log}' if status else 'done'}", flush=True)
    return (folder / "model").is_dir()


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """Return `settings` as words of a command: ``{"eval_every": 5}`` is ``--eval-every 5``."""
    return [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def read_solved(folder: Path) -> dict[str, bool]:
    """Return which held-out tasks the run in `folder` solves at its end."""
    with Run.open(folder, writable=False) as run:
        last = max(row["step"] for row in run.metrics() if "eval/success" in row)
        episodes = run.trajectories(step=last, phase="eval")
        return {t.task.id: isinstance(t.outcome, Score) and t.outcome.is_success for t in episodes}


def digest_weights(folder: Path) -> tuple[str, ...]:
    """Return digests of the weights in `folder`."""
    return tuple(
        hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.safetensors"))
    )


def require_one_start(folders: Sequence[Path], seed: int) -> None:
    """Stop the program unless the runs in `folders` began with the same weights, byte for byte."""
    found = {digest_weights(folder / "start") for folder in folders}
    if len(found) != 1 or () in found:
        sys.exit(f"seed {seed}: the arms did not begin with the same weights; they cannot be compared")


def compare_pairs(one: Mapping[str, bool], other: Mapping[str, bool]) -> float:
    """Return McNemar's chance for two readings of the same tasks."""
    pairs = [(solved, other[task]) for task, solved in one.items()]
    return mcnemar(sum(a > b for a, b in pairs), sum(a < b for a, b in pairs))
