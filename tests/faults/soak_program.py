"""A soak: one run trains under a random fault every few seconds, beside one that is left alone; both must agree.

It reads a folder, minutes, seconds between faults and a seed from its input and prints one JSON object. Whatever the
faults were, every step that both runs have must have the same metrics, and every checkpoint the same weights.
"""

import json
import os
import random
import resource
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.faults.run_program import CONFIG, curve, forked, jumping, train

import quintain.warm_start.corpus
from quintain.store import faults
from quintain.store.run import Run

LONG = replace(CONFIG, steps=1_000_000, eval_every=5)
ERRORS = ("ENOSPC", "EIO", "EMFILE")
FAULTS = ("kill", "SIGTERM", "SIGINT", "two signals", "pause", *ERRORS, "kill in I/O", "damage", "clock")
"""What may happen. Errors of the disk, kills in I/O and a clock that jumps are for the process that continues."""
DEADLINE = 300.0
"""Seconds in which a run must have ended after a signal, on however busy a machine."""
MOST_OPERATIONS = 60
"""I/O operations among which the one that fails is drawn: those of a few steps and a checkpoint."""


class Nemesis:
    """Does what a seed says to the run in `folder`, and keeps it going."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.struck: Counter[str] = Counter()
        self.restarts: Counter[int] = Counter()
        self.child = self.start("", False)

    def start(self, spec: str, has_jumps: bool) -> int:
        """Continue the run in a new process, which will meet the fault `spec`."""
        seed = self.rng.randrange(1 << 30)
        reading, writing = os.pipe()

        def work() -> None:
            os.write(writing, b"!")
            if has_jumps:
                jumping(seed)
            if spec:
                with faults.inject(spec):
                    train(self.folder, LONG)
            train(self.folder, LONG)

        child = forked(work, f"{self.folder}.log")
        os.read(reading, 1)  # Python forgets signals that come while it forks
        os.close(reading)
        os.close(writing)
        return child

    def watch(self) -> None:
        """Start the run again if it ended."""
        ended, status = os.waitpid(self.child, os.WNOHANG)
        if ended:
            self.restarts[os.waitstatus_to_exitcode(status)] += 1
            self.child = self.start("", False)

    def end(self, *numbers: signal.Signals) -> None:
        """Send `numbers`, one after the other, and wait for the end."""
        for number in numbers:
            os.kill(self.child, number)
            time.sleep(0.01)
        ended, status, since = 0, 0, time.monotonic()
        while not ended:
            ended, status = os.waitpid(self.child, os.WNOHANG)
            time.sleep(0.01)
            assert time.monotonic() - since < DEADLINE, f"{numbers} were ignored by process {self.child}"
        self.restarts[os.waitstatus_to_exitcode(status)] += 1

    def strike(self) -> None:
        """Do one thing to the run."""
        what = self.rng.choice(FAULTS)
        self.struck[what] += 1
        operation = self.rng.randint(1, MOST_OPERATIONS)
        if what == "pause":
            os.kill(self.child, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.1, 3))
            os.kill(self.child, signal.SIGCONT)
            return
        ends = {"SIGTERM": [signal.SIGTERM], "SIGINT": [signal.SIGINT], "two signals": [signal.SIGINT] * 2}
        self.end(*ends.get(what, [signal.SIGKILL]))
        if what == "damage":
            self.damage()
        spec = {"kill in I/O": f"io:{operation}:kill"}.get(what, "")
        if what in ERRORS:
            spec = f"io:{operation}:{what}"
        self.child = self.start(spec, what == "clock")

    def damage(self) -> None:
        """Flip a bit of the newest checkpoint, where another is left."""
        kept = sorted((self.folder / "checkpoints").glob("step-*"))
        if len(kept) < 2:
            return
        file = self.rng.choice(sorted(each for each in kept[-1].iterdir() if each.is_file()))
        content = bytearray(file.read_bytes())
        content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
        file.write_bytes(content)


def fingerprints(folder: Path) -> dict[int, str]:
    """Return the fingerprint of the weights after each step."""
    with Run.open(folder, writable=False) as run:
        return run.weights()


def compared(left: Path, right: Path) -> dict[str, Any]:
    """Return how many steps and checkpoints both runs have, and where they differ."""
    rows = [{row["step"]: row for row in curve(folder)} for folder in (left, right)]
    prints = [fingerprints(folder) for folder in (left, right)]
    steps, saved = sorted(rows[0].keys() & rows[1].keys()), sorted(prints[0].keys() & prints[1].keys())
    return {
        "steps": len(steps),
        "checkpoints": len(saved),
        "last_common": saved[-1],
        "hash": prints[0][saved[-1]],
        "wrong_steps": [step for step in steps if rows[0][step] != rows[1][step]],
        "wrong_checkpoints": [step for step in saved if prints[0][step] != prints[1][step]],
        "is_without_gap": steps == list(range(len(steps))),
    }


def main() -> None:
    """Do what the input asks."""
    root, minutes, pause, seed = Path(input()), float(input()), float(input()), int(input())
    torch.set_num_threads(1)
    quintain.warm_start.corpus.NUM_EPISODES = 4
    started = time.monotonic()
    calm = forked(lambda: train(root / "calm", LONG))
    nemesis = Nemesis(root / "soaked", seed)
    next_fault = started + pause
    while (now := time.monotonic()) - started < 60 * minutes:
        time.sleep(0.2)
        nemesis.watch()
        if now >= next_fault:
            nemesis.strike()
            next_fault = now + pause
    nemesis.end(signal.SIGTERM)
    os.kill(calm, signal.SIGTERM)
    _, status = os.waitpid(calm, 0)
    report = compared(root / "calm", root / "soaked")
    report |= {
        "seconds": time.monotonic() - started,
        "faults": nemesis.struck.total(),
        "by_kind": dict(sorted(nemesis.struck.items())),
        "ends": {str(code): num for code, num in sorted(nemesis.restarts.items())},
        "calm_status": os.waitstatus_to_exitcode(status),
        "megabytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
