"""Training runs under faults: children are forked, killed or signalled at a given call, and resumed in another child.

It reads a folder and the numbers of faults from its input and prints one JSON object: how many faults there were, and
what differed from the uninterrupted run. Forks share the loaded libraries, so that many faults cost little.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch

import quintain.warm_start.corpus
from quintain.errors import QuintainError
from quintain.learning.learner import Forward, Learner
from quintain.methods.rl import grpo
from quintain.runs.collector import Collector
from quintain.runs.context import TrainingContext
from quintain.store import faults
from quintain.store.checkpoints import Checkpoints, damage
from quintain.store.run import Run

STEPS, EVAL_EVERY = 20, 2
HOUR = 3600.0
CONFIG = grpo.Config(
    environment=f"{Path(__file__).parents[1] / 'runs' / 'test_context.py'}:Lever",
    model="micro",
    demonstrations=16,
    imitation_epochs=3,
    learning_rate=1e-4,
    steps=STEPS,
    eval_every=EVAL_EVERY,
    eval_episodes=2,
    tasks=2,
    group_size=4,
)
PHASES: dict[str, tuple[Any, str]] = {
    "rollout": (Collector, "sample"),
    "forward": (Forward, "__call__"),
    "backward": (torch.Tensor, "backward"),
    "optimizer": (torch.optim.AdamW, "step"),
    "evaluation": (TrainingContext, "evaluate"),
}
"""Where a run is killed first: class and method."""
AGAIN: dict[str, tuple[Any, str]] = {
    "resume": (Run, "_take_up"),
    "load": (Learner, "load"),
    "pruning": (Checkpoints, "_prune"),
    "commit": (Run, "commit"),
}
"""Where every second run is killed once more, in the process that continues it."""


def train(folder: Path, config: grpo.Config = CONFIG) -> None:
    """Start the run in `folder`, or continue it."""
    if (folder / "run.db").exists():
        with Run.open(folder) as run:
            grpo.method(config).train(run, config)
    else:
        with Run.create(folder, recipe="grpo", config=asdict(config)) as run:
            grpo.method(config).train(run, config)


def watched(owner: Any, name: str, see: Callable[[int, bool], None]) -> None:
    """Let `see` know of every call of a method: its number from 1, and whether it is over."""
    original: Callable[..., Any] = getattr(owner, name)
    seen = [0]

    def wrapped(*args: Any, **fields: Any) -> Any:
        seen[0] += 1
        number = seen[0]
        see(number, False)
        result = original(*args, **fields)
        see(number, True)
        return result

    setattr(owner, name, wrapped)


def dying(owner: Any, name: str, call: int) -> None:
    """Let this process be killed in call number `call` of a method: before it in odd calls, else after it."""

    def see(number: int, is_over: bool) -> None:
        if number == call and is_over == (call % 2 == 0):
            os.kill(os.getpid(), signal.SIGKILL)

    watched(owner, name, see)


def forked(work: Callable[[], None], log: str = os.devnull) -> int:
    """Run `work` in a fork that writes its messages to `log`, and return its process number."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
            work()
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(error.exit_code if isinstance(error, QuintainError) else 1)
        os._exit(0)
    return child


def in_child(work: Callable[[], None], log: str = os.devnull) -> int:
    """Run `work` in a fork and return its status: 0, or -9 when it was killed."""
    _, status = os.waitpid(forked(work, log), 0)
    return os.waitstatus_to_exitcode(status)


def curve(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of the run in `folder` without those that a clock gave."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in row.items() if not k.startswith(("time/", "machine/", "tokens_per"))}
        for row in rows
    ]


def outcome(folder: Path) -> dict[str, Any]:
    """Return what must be equal: the curve without clocks, and hashes of the weights and of the newest checkpoint."""
    newest = max((folder / "checkpoints").glob("step-*"))
    files = [*folder.glob("model/*.safetensors"), *newest.glob("*.safetensors")]
    return {"curve": curve(folder), **{file.name: digest for file, digest in digests(files).items()}}


def digests(files: Iterable[Path]) -> dict[Path, str]:
    """Return the SHA-256 of each of `files`."""
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def whole(root: Path) -> dict[str, int]:
    """Do the run that is left alone and return how often each place is passed, and the number of I/O operations."""

    def counting() -> None:
        counts: dict[str, int] = {}
        for phase, (owner, name) in (PHASES | AGAIN).items():

            def see(number: int, is_over: bool, phase: str = phase) -> None:
                counts[phase] = number

            watched(owner, name, see)
        with faults.inject("io:0:EIO") as fault:
            train(root / "whole")
        counts["io"] = len(fault.calls)
        (root / "counts").write_text(json.dumps(counts))

    assert in_child(counting) == 0
    return json.loads((root / "counts").read_text())


def too_few(folder: Path) -> str:
    """Return what is wrong with the checkpoints after a kill: from the second on, two are always intact."""
    kept = sorted((folder / "checkpoints").glob("step-*"))
    intact = [each for each in kept if damage(each) is None]
    newest = max([int(each.name[5:]) for each in kept], default=0)
    return f"only {len(intact)} intact checkpoints" if newest >= EVAL_EVERY and len(intact) < 2 else ""


def judged(folder: Path, expected: dict[str, Any]) -> str:
    """Resume the run in `folder` and return how it differs from the whole one; a run that is equal is removed."""
    log = Path(f"{folder}.log")
    if status := in_child(lambda: train(folder), str(log)):
        return f"status {status}: {log.read_text()[-500:]}"
    if outcome(folder) != expected:
        return "another outcome"
    shutil.rmtree(folder)
    return ""


def killed_runs(root: Path, kills: int, counts: dict[str, int]) -> dict[str, Any]:
    """Kill `kills` runs, every second one twice, and compare each with the whole one."""
    expected, rng = outcome(root / "whole"), random.Random(0)
    wrong: dict[str, str] = {}
    num: dict[str, int] = {}
    for number in range(kills):
        folder = root / f"{number}"
        phase = list(PHASES)[number % len(PHASES)]
        place = (number // len(PHASES)) % STEPS
        call = 1 + place * counts[phase] // STEPS
        bad = [killed(folder, PHASES[phase], call, num, phase)]
        if number % 2:
            phase = list(AGAIN)[number // 2 % len(AGAIN)]
            most = 1 if phase in ("resume", "load") else 4
            bad.append(killed(folder, AGAIN[phase], rng.randint(1, most), num, f"again in {phase}"))
        bad.append(judged(folder, expected))
        if any(bad):
            wrong[f"{number}"] = "; ".join(filter(None, bad))
    return {"kills": sum(num.values()), "by_place": num, "wrong": wrong}


def killed(folder: Path, place: tuple[Any, str], call: int, num: dict[str, int], phase: str) -> str:
    """Kill the run in `folder` at `call` of `place`, count it in `num` and return what is wrong after it."""

    def doomed() -> None:
        dying(*place, call)
        train(folder)

    if in_child(doomed) == -signal.SIGKILL:
        num[phase] = num.get(phase, 0) + 1
    return too_few(folder) if (folder / "run.db").exists() else ""


def killed_at_points(root: Path, kills: int, counts: dict[str, int]) -> dict[str, Any]:
    """Kill one run at each I/O operation of a checkpoint, or at `kills` of them, evenly spread."""
    expected = outcome(root / "whole")
    first, last = counts["io"] // 2, counts["io"] // 2 + counts["io"] * EVAL_EVERY // STEPS
    points = list(range(first, last + 1))
    chosen = points if kills >= len(points) else points[:: -(-len(points) // max(kills, 1))]
    wrong: dict[str, str] = {}
    num = 0
    for point in chosen:
        folder = root / f"point{point}"

        def doomed(folder: Path = folder, point: int = point) -> None:
            with faults.inject(f"io:{point}:kill"):
                train(folder)

        num += in_child(doomed) == -signal.SIGKILL
        if bad := too_few(folder) or judged(folder, expected):
            wrong[str(point)] = bad
    return {"kills": num, "points": len(points), "wrong": wrong}


def signalled_runs(root: Path, signals: int) -> dict[str, Any]:
    """Ask `signals` runs to stop at random times, every third of them twice, then resume them."""
    expected = outcome(root / "whole")
    report: dict[str, Any] = {"signals": 0, "slowest": 0.0, "second_signals": 0, "slowest_second": 0.0}
    wrong = dict[str, str]()
    for number in range(signals):
        folder = root / f"signal{number}"
        stopped = in_child(lambda folder=folder: asked(folder))
        told = json.loads((root / "told").read_text())
        kind = "second" if told["is_second"] else "first"
        report["second_signals" if kind == "second" else "signals"] += 1
        slowest = "slowest_second" if kind == "second" else "slowest"
        report[slowest] = max(report[slowest], told["seconds"])
        if stopped or told["bad"]:
            wrong[str(number)] = f"status {stopped}; {told['bad']}"
        elif bad := judged(folder, expected):
            wrong[str(number)] = bad
    return {**report, "wrong": wrong}


def asked(folder: Path) -> None:
    """Train, and be asked to stop after a random time; say in a file how long that took.

    On a quick machine the steps that are left may take less than that time: the last but one waits to be asked.
    """
    number = int(folder.name.removeprefix("signal"))
    rng = random.Random(number)
    kind = signal.SIGTERM if number % 2 else signal.SIGINT
    has_second = number % 3 == 2
    began: list[float] = []
    chosen = rng.randint(1, STEPS - 2)

    def see(call: int, is_over: bool) -> None:
        if call == chosen and not is_over:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.05))
        until = time.monotonic() + 60.0
        while call == STEPS - 1 and not began and time.monotonic() < until:
            time.sleep(1e-3)

    def strike(*_: object) -> None:
        if has_second and not began:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.02))
        began.append(time.monotonic())
        os.kill(os.getpid(), kind)

    watched(Collector, "sample", see)
    signal.signal(signal.SIGALRM, strike)
    bad = "it was not interrupted"
    try:
        train(folder)
    except KeyboardInterrupt:
        seconds = time.monotonic() - began[-1]
        signal.setitimer(signal.ITIMER_REAL, 0)
        steps = [row["step"] for row in curve(folder)]
        saved = max(int(each.name[5:]) for each in (folder / "checkpoints").glob("step-*"))
        is_second = len(began) > 1
        bad = "" if is_second or saved == steps[-1] else f"saved step {saved} of {steps[-1]}"
        (folder.parent / "told").write_text(
            json.dumps({"seconds": seconds, "is_second": is_second, "bad": bad})
        )
        return
    (folder.parent / "told").write_text(json.dumps({"seconds": 0.0, "is_second": False, "bad": bad}))


def jumping(seed: int) -> None:
    """Let the clock of the wall jump by up to an hour, forward and back, whenever it is read."""
    rng, real = random.Random(seed), time.time
    cast(Any, time).time = lambda: real() + rng.choice((-HOUR, 0.0, HOUR))


def runs_with_jumps(root: Path, jumps: int) -> dict[str, Any]:
    """Do `jumps` runs on a clock that jumps, killed half-way, and compare each with the whole one."""
    expected, wrong = outcome(root / "whole"), dict[str, str]()
    for number in range(jumps):
        folder = root / f"clock{number}"

        def jumpy(call: int, folder: Path = folder, seed: int = number) -> None:
            jumping(seed)
            if call:
                dying(Collector, "sample", call)
            with contextlib.suppress(KeyboardInterrupt):
                train(folder)

        in_child(lambda jumpy=jumpy, number=number: jumpy(2 + number % (STEPS - 2)))
        status = in_child(lambda jumpy=jumpy: jumpy(0))
        if status or outcome(folder) != expected:
            wrong[str(number)] = f"status {status}"
    return {"jumps": jumps, "wrong": wrong}


def main() -> None:
    """Do what the input asks."""
    root, kills, signals = Path(input()), int(input()), int(input())
    torch.set_num_threads(1)
    quintain.warm_start.corpus.NUM_EPISODES = 4
    started = time.monotonic()
    counts = whole(root)
    report: dict[str, Any] = {
        "counts": counts,
        "killed": killed_runs(root, kills, counts),
        "points": killed_at_points(root, kills, counts),
        "signalled": signalled_runs(root, signals),
        "clocks": runs_with_jumps(root, max(1, kills // 5)),
    }
    report["seconds"] = time.monotonic() - started
    print(json.dumps(report))


if __name__ == "__main__":
    main()
