"""A method trained from a start for a few steps, and what it then solves of tasks that nobody trained on."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from quintain.benchmarks.labs.probe import opened
from quintain.methods.loops import train_by
from quintain.methods.method import OnPolicy
from quintain.store.run import Run
from quintain.training.context import MODEL, START
from quintain.training.job import Job


def trained(method: OnPolicy, job: Job, start: Path, root: Path) -> Path:
    """Train the policy in the folder `start` by `method` as `job` says, in a run below `root`; return its model."""
    with Run.create(root, recipe="bench", config=asdict(job)) as run:
        shutil.copytree(start, run.folder / START, dirs_exist_ok=True)
        train_by(method, job, run)
        return run.folder / MODEL


def solved(model: Path, job: Job, *, tasks: int, seed: int, agent: str | None = None) -> float:
    """Return the share of `tasks` held-out tasks that the policy in `model` solves, through `agent` if given."""
    with opened(model, job.environment, seed=seed, agent=agent or job.agent) as probe:
        groups = probe.play(probe.tasks(tasks))
    episodes = [t for group in groups for t in group.scored]
    return sum(t.is_success for t in episodes) / len(episodes)


def compared(
    arms: dict[str, OnPolicy], job: Job, start: Path, *, tasks: int, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return what each of `arms` solves after training from `start`, and what a deaf actor solves with it."""
    found, deaf = dict[str, float](), dict[str, float]()
    with TemporaryDirectory() as folder:
        for name, method in arms.items():
            model = trained(method, job, start, Path(folder) / name)
            found[name] = solved(model, job, tasks=tasks, seed=seed)
            if "actor=scripted" in job.agent:
                agent = job.agent.replace("actor=scripted", "actor=deaf")
                deaf[name] = solved(model, job, tasks=tasks, seed=seed, agent=agent)
    return found, deaf
