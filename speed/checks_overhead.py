"""What the checks of every step cost: python speed/checks_overhead.py [--environment guess] [--json FILE]

A short run of GRPO with the tiny model, with a clock around each check; its share is its time on the processor over
that of the steps, the first of which is left out. Checks that stand in the middle of a function are carried out a
second time beside it and timed there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from quintain.data import samples
from quintain.learning import gap
from quintain.learning.canary import Canary
from quintain.learning.learner import Learner
from quintain.methods.rl import grpo
from quintain.rollout.collect import Rollout
from quintain.runs import context as module
from quintain.runs.context import TrainingContext
from quintain.runs.monitors.watch import Monitors
from quintain.store.run import Run
from quintain.types import derive_seed

STEPS = 5
SPENT: dict[str, float] = {}
"""check → seconds on the processor"""


def timed(name: str, owner: Any, function: str, beside: Callable[..., object] | None = None) -> None:
    """Put a clock around `function` of `owner`, or around `beside`, which is then called besides."""
    original = getattr(owner, function)

    def call(*arguments: Any, **named: Any) -> Any:
        started = time.process_time()
        if beside is not None:
            beside(*arguments, **named)
            SPENT[name] = SPENT.get(name, 0.0) + time.process_time() - started
            return original(*arguments, **named)
        try:
            return original(*arguments, **named)
        finally:
            SPENT[name] = SPENT.get(name, 0.0) + time.process_time() - started

    setattr(owner, function, call)


def finite(credit: Any, _streams: Any) -> None:
    """Look at the numbers of a step for what is not finite, as `samples_from` does."""
    for arrays in credit.advantages:
        np.isfinite(np.concatenate([np.asarray(part).ravel() for part in arrays] or [np.zeros(1)])).all()
    logprobs = [turn.completion.logprobs for t in credit.trajectories for turn in t.turns]
    np.isfinite(np.array([number for part in logprobs for number in part])).all()


def finite_step(_learner: Any, batches: Sequence[Any], *_: Any, **__: Any) -> None:
    """Look at loss and norm, as the learner does before it takes a step."""
    torch.tensor([float(len(batches)), 1.0]).isfinite().all().item()


def distinct(_rollout: Any, tasks: Sequence[Any], *, size: int, seed: int, **_: Any) -> None:
    """Derive the seeds of a step and count them, as the rollout does."""
    seeds = [derive_seed(seed, t.id, place, index) for place, t in enumerate(tasks) for index in range(size)]
    assert len(set(seeds)) == len(seeds)


def measured(environment: str) -> dict[str, float]:
    """Return the share of each check in the steps of a run, in per cent, and the seconds of a step."""
    timed("S1 S5 gap and shift of log-probs", gap, "gap")
    timed("S1 S5 their bounds", gap, "check")
    timed("S3 S4 trained tokens are the sampled ones", samples, "_check")
    timed("S13 canary after the sync", Canary, "check")
    timed("S14 finite advantages and log-probs", samples, "_check", finite)
    timed("S14 finite loss and gradient", Learner, "step", finite_step)
    timed("S16 distinct seeds", Rollout, "groups", distinct)
    checks = tuple(f"S{number}" for number in (1, 3, 13, 14, 16))
    timed("monitors: measures", Monitors, "measure")
    timed("monitors: alarms", Monitors, "judge")
    timed("fingerprint of the weights", module, "fingerprint")
    steps: list[float] = []
    record = TrainingContext.record

    def recorded(context: TrainingContext, step: int, row: dict[str, float]) -> None:
        record(context, step, row)
        if step == 1:
            SPENT.clear()
        if 1 <= step <= STEPS:
            steps.append(time.process_time())
        if step == STEPS:
            SPENT["seconds"] = steps[-1] - steps[0]
            SPENT.update({f"kept {name}": seconds for name, seconds in SPENT.items() if name != "seconds"})

    TrainingContext.record = recorded  # pyright: ignore[reportAttributeAccessIssue]
    with TemporaryDirectory() as place:
        config = grpo.Config(
            environment=environment,
            steps=STEPS + 1,  # the last one also evaluates and saves
            eval_every=1000,
            eval_episodes=1,
            demonstrations=32,
            imitation_epochs=4,
        )
        with Run.create(Path(place) / "run", recipe="grpo", config={}) as run:
            grpo.method(config).train(run, config)
    kept = {name.removeprefix("kept "): s for name, s in SPENT.items() if name.startswith("kept ")}
    shares = {name: 100 * seconds / SPENT["seconds"] for name, seconds in kept.items()}
    always = sum(share for name, share in shares.items() if name.split()[0] in checks)
    return {
        **shares,
        "all of S1 S3 S4 S5 S13 S14 S16": always,
        "seconds of a step": SPENT["seconds"] / (len(steps) - 1),
    }


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", default="guess", help="environment to train on")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(arguments.environment)
    for name, value in found.items():
        unit = "" if name.startswith("seconds") else " %"
        print(f"{name:44} {value:8.3f}{unit}")
    file: Path | None = arguments.json
    if file is not None:
        file.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
