"""How fast the journal is written and read, and how large it gets, beside the code of another revision.

``python speed/journal.py --against REVISION`` takes its ``src`` out of git into a temporary folder and runs
both in turn, each in a process of its own. It prints the median over the rounds of the ratios of the two, and seconds
are those of the processor, so a machine or a disk that is busy for a while does not matter: rates above 1 and bytes
below 1 are better than the other revision.
"""

import argparse
import json
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"short": (2, 4, 12, 128), "games": (8, 10, 40, 64), "tools": (20, 60, 150, 12)}
"""Kind of episode → turns, words of an observation, tokens of a prompt, episodes in a step."""
STEPS = 3


def episodes(kind: str) -> list[Any]:
    """Return the episodes of one step."""
    from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn, as_content

    rng = random.Random(0)
    num_turns, num_words, num_prompt, count = KINDS[kind]
    words = (ROOT / "README.md").read_text().split()

    def text(num: int) -> str:
        return " ".join(rng.choices(words, k=num))

    def single(value: float) -> float:
        return struct.unpack("<f", struct.pack("<f", value))[0]

    def turn(version: int) -> Turn:
        num = num_prompt // 2
        return Turn(
            observation=as_content(text(num_words)),
            prompt_ids=tuple(rng.randrange(150_000) for _ in range(num_prompt)),
            completion=Completion(
                token_ids=tuple(rng.randrange(150_000) for _ in range(num)),
                logprobs=tuple(single(-rng.random()) for _ in range(num)),
                stop="stop",
                policy_version=version,
            ),
            action=Action(text=text(4)),
            reward=0.0,
        )

    return [
        Trajectory(
            task=Task(
                id=f"guess/train/{number}", environment="guess", seed=number, prompt="Find the number."
            ),
            turns=tuple(turn(3) for _ in range(num_turns)),
            outcome=Score(value=1.0, is_success=True),
            stop=Stop.TERMINATED,
            seed=rng.randrange(1 << 62),
            group=f"{number // 8}",
            index=number % 8,
            seconds=0.25,
        )
        for number in range(count)
    ]


def measure(kind: str, batch: list[Any], with_signals: bool) -> dict[str, float]:
    """Write and read a journal and return episodes a second and bytes an episode."""
    from quintain.store.run import Run

    folder = Path(tempfile.mkdtemp()) / "run"
    try:
        with Run.create(folder, recipe="r", config={}) as run:
            start = time.process_time()
            for step in range(STEPS):
                ids = run.append(batch, step=step)
                more: dict[str, Any] = {"uses": uses(batch, ids)} if with_signals else {}
                run.commit(step, {"metric": 1.0}, **more)
            wrote = time.process_time() - start
        with Run.open(folder, writable=False) as run:
            start = time.process_time()
            count = sum(1 for _ in run.trajectories())
            read = time.process_time() - start
        assert count == STEPS * len(batch)
        size = (folder / "run.db").stat().st_size
        return {"write": count / wrote, "read": count / read, "bytes": size / count}
    finally:
        shutil.rmtree(folder.parent)


def uses(batch: list[Any], ids: tuple[str, ...]) -> list[Any]:
    """Return uses with a weight, an advantage and a log-prob for each sampled token."""
    import numpy as np

    from quintain.types import Signals, Use

    rng = np.random.default_rng(0)
    found: list[Any] = []
    for trajectory, name in zip(batch, ids, strict=True):
        num = trajectory.num_sampled
        flat = np.full(num, 0.125, np.float32)
        noise = rng.normal(size=num).astype(np.float32)
        found.append(Use(episode=name, signals=Signals(weights=flat, advantages=flat, logprobs=noise)))
    return found


def answer() -> None:
    """Measure whatever the lines of the input ask for."""
    known: dict[str, list[Any]] = {}
    for line in sys.stdin:
        kind, with_signals = json.loads(line)
        if kind not in known:
            known[kind] = episodes(kind)
        print(json.dumps(measure(kind, known[kind], with_signals)), flush=True)


def asked(child: "subprocess.Popen[str]", kind: str, with_signals: bool = False) -> dict[str, float]:
    """Return what `child` measures."""
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(json.dumps([kind, with_signals]) + "\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def started(source: Path) -> "subprocess.Popen[str]":
    """Return a process that measures the code in `source`."""
    return subprocess.Popen(
        [sys.executable, __file__, "--answer"],
        env={"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def compare(revision: str, rounds: int) -> dict[str, Any]:
    """Return for each kind of episode the figures of this code, and the medians of its ratios to `revision`."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        ours, theirs = started(ROOT / "src"), started(Path(folder) / "src")
        try:
            return {kind: rows(ours, theirs, kind, rounds) for kind in KINDS}
        finally:
            for child in (ours, theirs):
                child.terminate()
                child.wait(timeout=30)


def rows(
    ours: "subprocess.Popen[str]", theirs: "subprocess.Popen[str]", kind: str, rounds: int
) -> dict[str, Any]:
    """Return the figures of one kind of episode."""
    asked(ours, kind), asked(theirs, kind)  # the first is slower
    pairs = [(asked(ours, kind), asked(theirs, kind)) for _ in range(rounds)]
    signals = [asked(ours, kind, True) for _ in range(3)]
    row: dict[str, Any] = {}
    for name in ("write", "read", "bytes"):
        row[name] = round(statistics.median(pair[0][name] for pair in pairs), 1)
        ratios = [pair[0][name] / pair[1][name] for pair in pairs]
        row[f"{name}_ratio"] = round(statistics.median(ratios), 3)
        row[f"{name}_with_signals"] = round(statistics.median(each[name] for each in signals), 1)
    return row


def main() -> None:
    """Print a row for each kind of episode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default="HEAD", help="the revision to compare with")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer()
        return
    found = compare(options.against, options.rounds)
    for kind, row in found.items():
        print(kind, *(f"{name}={value}" for name, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
