"""The loop of the family, for every method: episodes → seats → rewards → filters → credit → update.

What is a method's own is in its file, as the functions of a `Method`. The one rule: nothing here asks which
method it is.
"""

from quintain.data.seats import separated
from quintain.methods.loops.method import Method
from quintain.methods.rl.parts.by_task import by_task
from quintain.methods.rl.parts.judging import judged
from quintain.methods.rl.parts.refusals import refuse, refuse_without_turn_rewards, refuse_without_value_head
from quintain.rollout.collect import Limits
from quintain.store.run import Run
from quintain.training.job import Job
from quintain.training.work import Work, opened
from quintain.types import Group


def train(job: Job, run: Run, method: Method) -> None:
    """Train by `method` until `job.steps`, continuing where `run` was left."""
    needs = method.needs
    limits = Limits(has_state_keys=needs.state_keys)
    refuse(job, method)
    with opened(job, run, has_critic=needs.critic, has_reference=needs.reference, limits=limits) as work:
        refuse_without_turn_rewards(work, method)
        method.prepare(work)
        refuse_without_value_head(work, method)
        recall(work, method)
        for step in work.steps():
            groups = method.collect(work, step)
            see(method, groups)
            acted = separated(groups)
            rewarded = method.reward(acted)
            paid = judged(acted, rewarded, most=work.rollout.limits.max_failure_share)
            episodes = method.keep(rewarded)
            credit = method.credit(work, episodes)
            report = method.update(work, step, credit)
            metrics = {**credit.metrics, **paid, **by_task(episodes, credit), **method.measure(groups)}
            work.commit(step, groups, report, metrics)


def recall(work: Work, method: Method) -> None:
    """Let the memory of `method` see the recorded steps of a resumed run again."""
    for step in range(1, work.run.next_step if method.memory is not None else 1):
        see(method, recorded(work.run, step))


def see(method: Method, groups: list[Group]) -> None:
    """Let the memory of `method`, where it has one, see `groups`."""
    if method.memory is not None:
        method.memory.update(groups)


def recorded(run: Run, step: int) -> list[Group]:
    """Return the training groups of `step` as the journal has them."""
    members: dict[str, list[Group]] = {}
    for trajectory in run.trajectories(step=step, phase="train"):
        members.setdefault(trajectory.group, []).append(
            Group(task=trajectory.task, trajectories=(trajectory,))
        )
    return [
        Group(task=parts[0].task, trajectories=tuple(t for part in parts for t in part.trajectories))
        for parts in members.values()
    ]
