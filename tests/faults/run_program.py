"""A training run that is killed: children are forked, die at a given call of a phase, and are resumed in another child.

It reads a folder and the number of kills from its input and prints one JSON object: how many kills there were, and
what differed from the uninterrupted run. Forks share the loaded libraries, so that many kills cost little.
"""

import contextlib
import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch

import quintain.recipes.corpus
from quintain.recipes.rl import grpo
from quintain.recipes.work import Work
from quintain.store.run import Run
from quintain.trainers.learner import Learner

STEPS = 8
CONFIG = grpo.Config(
    environment=f"{Path(__file__).parents[1] / 'recipes' / 'test_work.py'}:Lever",
    model="micro",
    demonstrations=2,
    imitation_epochs=1,
    steps=STEPS,
    eval_every=2,
    eval_episodes=2,
    tasks=2,
    group_size=3,
)
PHASES: dict[str, tuple[Any, str, int]] = {
    "rollout": (Work, "sampled", STEPS),
    "forward": (Learner, "forward", 2 * STEPS),
    "backward": (torch.Tensor, "backward", STEPS),
    "optimizer": (torch.optim.AdamW, "step", STEPS),
    "evaluation": (Work, "evaluate", STEPS // 2 + 1),
    "commit": (Run, "commit", STEPS + 1),
}
"""Where a run is killed: class, method, and how often it is called at least."""


def train(folder: Path) -> None:
    """Start the run in `folder`, or continue it."""
    if (folder / "run.db").exists():
        with Run.open(folder) as run:
            grpo.train(CONFIG, run)
    else:
        with Run.create(folder, recipe="grpo", config=asdict(CONFIG)) as run:
            grpo.train(CONFIG, run)


def dying(owner: Any, name: str, call: int) -> None:
    """Let this process be killed in call number `call` of a method: before it in odd calls, else after it."""
    original: Callable[..., Any] = getattr(owner, name)
    seen = [0]

    def wrapped(*args: Any, **fields: Any) -> Any:
        seen[0] += 1
        if seen[0] == call and call % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **fields)
        if seen[0] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a fork and return its status: 0, or -9 when it was killed."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work()
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def outcome(folder: Path) -> dict[str, Any]:
    """Return what must be equal: the curve without clocks, and hashes of the weights and of the newest checkpoint."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    curve = [{k: v for k, v in row.items() if not k.startswith(("time/", "tokens_per"))} for row in rows]
    newest = max((folder / "checkpoints").glob("step-*"))
    files = [*folder.glob("model/*.safetensors"), *newest.glob("*.safetensors")]
    return {"curve": curve, **{f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(files)}}


def killed_runs(root: Path, kills: int) -> dict[str, Any]:
    """Kill `kills` runs, twice where the number is even, and compare each with the whole one."""
    assert in_child(lambda: train(root / "whole")) == 0
    expected = outcome(root / "whole")
    rng = random.Random(0)
    wrong: dict[str, str] = {}
    num = 0
    for number in range(kills):
        phase = list(PHASES)[number % len(PHASES)]
        owner, name, most = PHASES[phase]
        folder = root / f"{number}"
        for _ in range(1 + number % 2):
            call = rng.randint(1, most)

            def doomed(owner: Any = owner, name: str = name, call: int = call, folder: Path = folder) -> None:
                dying(owner, name, call)
                train(folder)

            num += in_child(doomed) == -signal.SIGKILL
        status = in_child(lambda folder=folder: train(folder))
        if status or outcome(folder) != expected:
            wrong[f"{number} {phase}"] = f"status {status}"
    return {"kills": num, "wrong": wrong}


def signalled_runs(root: Path, signals: int) -> dict[str, Any]:
    """Ask `signals` runs to stop at random times, then resume them."""
    expected = outcome(root / "whole")
    slowest, wrong = 0.0, dict[str, str]()
    for number in range(signals):
        folder = root / f"signal{number}"
        stopped = in_child(lambda folder=folder: asked(folder))
        status = in_child(lambda folder=folder: train(folder)) or stopped
        seconds = float((root / "seconds").read_text() or 0)
        slowest = max(slowest, seconds)
        if status or outcome(folder) != expected:
            wrong[str(number)] = f"status {status}"
    return {"signals": signals, "slowest": slowest, "wrong": wrong}


def asked(folder: Path) -> None:
    """Train, and be asked to stop after a random time."""
    number = int(folder.name.removeprefix("signal"))
    rng = random.Random(number)
    kind = signal.SIGTERM if number % 2 else signal.SIGINT
    began = [0.0]
    ask: Callable[..., Any] = Work.sampled
    left = [rng.randint(1, STEPS)]

    def sampled(work: Work, *args: Any, **fields: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.05))
        return ask(work, *args, **fields)

    def strike(*_: object) -> None:
        began[0] = time.monotonic()
        os.kill(os.getpid(), kind)

    cast(Any, Work).sampled = sampled
    signal.signal(signal.SIGALRM, strike)
    with contextlib.suppress(KeyboardInterrupt):
        train(folder)
    (folder.parent / "seconds").write_text(str(time.monotonic() - began[0] if began[0] else 0.0))


def main() -> None:
    """Do what the input asks."""
    root, kills, signals = Path(input()), int(input()), int(input())
    torch.set_num_threads(1)
    quintain.recipes.corpus.NUM_EPISODES = 4
    report = {"killed": killed_runs(root, kills), "signalled": signalled_runs(root, signals)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
