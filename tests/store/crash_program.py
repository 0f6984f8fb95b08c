"""A program that is killed: for every I/O operation of a step, a child dies there and the run is looked at.

It reads a folder and the name of a scenario from its input and prints one JSON object: the number of points
and what was found wrong. Children are forks, so many kills cost little. Syncs are skipped: they matter to a
power cut only.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from quintain.store import faults
from quintain.store.checkpoints import damage
from quintain.store.run import Run
from quintain.types import (
    Action,
    Branch,
    Completion,
    Score,
    Signals,
    Stop,
    Task,
    Trajectory,
    Turn,
    Use,
    as_content,
)

LIMIT = 500
ONE = np.array([0.25], np.float32)
SIGNALS = Signals(advantages=ONE)


def trajectory(step: int, index: int) -> Trajectory:
    turn = Turn(
        observation=as_content(f"step {step}"),
        prompt_ids=(step, index),
        completion=Completion(token_ids=(step,), logprobs=(-0.5,), stop="stop"),
        action=Action(text="go"),
    )
    return Trajectory(
        task=Task(id="t", environment="e", seed=0),
        turns=(turn,),
        outcome=Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED,
        seed=step,
        group="g",
        index=index,
    )


def branch(step: int, parent: str) -> Trajectory:
    whole = trajectory(step, 0)
    return replace(whole, turns=whole.turns * 2, parent=Branch(episode=parent, turn=1))


def weights(step: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(str(step))
        (folder / "trainer").write_text(str(step))

    return write


def do_step(run: Run) -> None:
    """Collect two episodes and a branch, and learn from them and from one of the step before."""
    step = run.next_step
    ids = run.append([trajectory(step, 0), trajectory(step, 1)], step=step)
    run.append([branch(step, ids[0])], step=step, phase="branches")
    stale = [use.episode for _, use in run.uses(step - 1)][-1:]
    run.commit(step, {"metric": step}, uses=[Use(episode=name, signals=SIGNALS) for name in (*ids, *stale)])
    run.checkpoint(step, weights(step))


def train(folder: Path) -> None:
    with Run.open(folder) as run:
        do_step(run)


def again(folder: Path) -> None:
    """Save the newest checkpoint once more."""
    with Run.open(folder) as run:
        run.checkpoint(run.next_step - 1, weights(run.next_step - 1))


def wrong(folder: Path, old_step: int) -> list[str]:
    """Return what is wrong with a run that was at `old_step` before a kill in the step after it."""
    found: list[str] = []
    with Run.open(folder, writable=False) as reader:
        if reader.status != "interrupted":
            found.append(f"status {reader.status}")
    with Run.open(folder) as run:
        checkpoint = run.latest_checkpoint()
        if checkpoint is None or checkpoint.step not in (old_step, old_step + 1):
            return [f"checkpoint {checkpoint}"]
        texts = {(checkpoint.folder / name).read_text() for name in ("model/weights", "trainer")}
        if texts != {str(checkpoint.step)}:
            found.append(f"mixed {texts}")
        if run.next_step != checkpoint.step + 1:
            found.append(f"next step {run.next_step}")
        steps = list(range(run.next_step))
        if [row["step"] for row in run.metrics()] != steps:
            found.append(f"metrics {run.metrics()}")
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        if [json.loads(line) for line in lines] != run.metrics():
            found.append(f"curve {lines}")
        if list(run.trajectories(phase="train")) != [
            trajectory(s, index) for s in steps for index in range(2)
        ]:
            found.append("trajectories")
        ids = [each.id for each in run.trajectories(phase="train")]
        if list(run.trajectories(phase="branches")) != [branch(s, ids[2 * s]) for s in steps]:
            found.append("branches")
        used = [use.episode for _, use in run.uses()]
        if used != used_until(ids) or any(differs(use.signals) for _, use in run.uses()):
            found.append(f"uses {used}")
        intact = [each for each in (folder / "checkpoints").iterdir() if damage(each) is None]
        names = [each.name for each in (folder / "checkpoints").iterdir()]
        if len(intact) < 2 or len(intact) != len(names):
            found.append(f"checkpoints {names}")
        do_step(run)
    return found


def used_until(ids: list[str]) -> list[str]:
    """Return what steps with two episodes each use: their own, and the last one that the step before used."""
    used: list[str] = []
    for step in range(len(ids) // 2):
        used += [*ids[2 * step : 2 * step + 2], *used[-1:]]
    return used


def differs(signals: Signals | None) -> bool:
    return signals is None or signals.advantages is None or signals.advantages.tobytes() != ONE.tobytes()


def die_at(number: int, kind: str, act: Callable[[Path], None], folder: Path) -> bool:
    """Run `act` in a child that dies at operation `number`; return whether it did."""
    child = os.fork()
    if child == 0:
        with faults.inject(f"io:{number}:{kind}"):
            act(folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) not in (0, 137):
        raise SystemExit(f"the child of point {number} failed instead of dying")
    return status != 0


def main(root: Path, scenario: str) -> None:
    act = {"train": train, "again": again, "resume": lambda folder: Run.open(folder).close()}[scenario]
    template = root / "template"
    with Run.create(template, recipe="r", config={}) as run:
        for _ in range(2):
            do_step(run)
        run.append([trajectory(2, 0)], step=2)  # of a step that was never finished
    found: dict[str, list[str]] = {}
    for number in range(1, LIMIT):
        folder = root / f"point{number}"
        shutil.copytree(template, folder)
        if not die_at(number, "kill" if number % 2 else "exit", act, folder):
            print(json.dumps({"points": number - 1, "wrong": found}))
            return
        die_at(
            1 + number % 7, "kill", lambda at: Run.open(at).close(), folder
        )  # and once more, while resuming
        bad = wrong(folder, old_step=1)
        if bad:
            found[str(number)] = bad
        shutil.rmtree(folder)


if __name__ == "__main__":
    os.fsync = lambda fd: None
    main(Path(input()), input())
