"""Sample, keep what succeeded, imitate it, again: rejection sampling fine-tuning (arXiv 2308.01825; ReST, 2308.08998).

Each step samples several episodes per task with the current policy, keeps the different ones that solved the
task (at most `keep` per task, so that easy tasks do not crowd out hard ones), and imitates them.

Differences to the papers: both alternate between large collections and training from the base model; here one
step is a small collection and one update of the running policy (the on-line limit of ReST's grow and improve).
A step in which nothing succeeded takes no optimizer step.
"""

from dataclasses import dataclass

from quintain.data.filters import successful
from quintain.data.samples import imitation_samples
from quintain.losses.imitation import imitation
from quintain.store.run import Run
from quintain.training.job import Job
from quintain.training.work import opened
from quintain.types import Group, Trajectory, scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Job):
    """Configuration of rejection sampling fine-tuning."""

    tasks: int = 16
    """Tasks of a step."""
    group_size: int = 4
    """Episodes of a task."""
    keep: int = 2
    """Successful episodes of a task that are imitated, shortest first."""


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    with opened(config, run) as work:
        for step in work.steps():
            groups = work.groups(step, tasks=config.tasks, size=config.group_size)
            kept = [trajectory for group in groups for trajectory in accepted(group, config.keep)]
            report = work.learner.step(work.batches(imitation_samples(kept)), imitation()) if kept else None
            work.commit(step, groups, report, {"rft/kept": float(len(kept))})


def accepted(group: Group, keep: int) -> list[Trajectory]:
    """Return at most `keep` different successful trajectories of `group`, shortest first."""
    different = {tuple(turn.completion.token_ids for turn in t.turns): t for t in scored(successful([group]))}
    return sorted(different.values(), key=lambda t: (len(t.turns), t.index))[:keep]
