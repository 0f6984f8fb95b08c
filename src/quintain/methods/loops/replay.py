"""The replay loop: collect → buffer → updates of the critics → updates of the policy.

The buffer holds the newest episodes that the journal says were collected, so that a resumed run has the buffer that it
had. Which episodes an update draws depends on the run's seed, the step and the update alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from quintain.credit.layout import Critic
from quintain.data.seats import separated
from quintain.methods.loops.recall import recall, tell
from quintain.methods.loops.requirements import begun
from quintain.methods.method import CriticUpdate, Replay, ReplayBuffer
from quintain.store.run import Run
from quintain.training.job import MAIN, Job
from quintain.training.learner import StepReport
from quintain.training.policies import Policies, scored
from quintain.training.updating import learn
from quintain.types import Group, Trajectory, derive_seed


class Buffer:
    """The newest episodes of a run: ``Buffer(ReplayBuffer(capacity=512))``."""

    def __init__(self, settings: ReplayBuffer) -> None:
        self.settings = settings
        self._episodes: list[tuple[int, Trajectory]] = []

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self._episodes)

    def add(self, step: int, groups: Sequence[Group]) -> None:
        """Take in the scored episodes of `step`; the oldest leave above the capacity."""
        self._episodes += [(step, trajectory) for trajectory in scored(groups)]
        del self._episodes[: max(0, len(self._episodes) - self.settings.capacity)]

    def draw(self, seed: int) -> list[Group]:
        """Return a batch of different episodes, each a group of its own; a share of it comes from the newest step."""
        rng = np.random.default_rng(seed)
        size = min(self.settings.batch_size, len(self._episodes))
        newest = self._episodes[-1][0]
        fresh = [i for i, (step, _) in enumerate(self._episodes) if step == newest]
        first = rng.permutation(fresh)[: round(size * self.settings.fresh_share)].tolist()
        taken = set(first)
        others = [i for i in rng.permutation(len(self._episodes)).tolist() if i not in taken]
        chosen = [*first, *others][:size]
        return [Group(task=t.task, trajectories=(t,)) for t in (self._episodes[i][1] for i in chosen)]

    def metrics(self, step: int) -> dict[str, float]:
        """Return how many episodes there are, and how old they are on average, in steps."""
        ages = [step - collected for collected, _ in self._episodes]
        return {"buffer/size": float(len(ages)), "buffer/age": float(np.mean(ages)) if ages else 0.0}


def train_by_replay(method: Replay, job: Job, run: Run) -> None:
    """Train by `method` until ``job.steps``, continuing where `run` was left."""
    with begun(method.needs, job, run) as context:
        buffer = Buffer(method.buffer)
        for past, played in recall(run, method.state):
            buffer.add(past, method.reward(separated(played)))
        for step in context.steps():
            groups = method.collect(context.collector, step)
            method.state.update(groups)
            buffer.add(step, method.reward(separated(groups)))
            reports = [
                make_updates(
                    context.policies, buffer, update, job, step, context.seed("replay", step, number)
                )
                for number, update in enumerate(method.updates)
                if len(buffer) >= method.buffer.min_size
            ]
            row = context.measure(
                groups,
                next((report for policy, report, _ in reversed(reports) if policy == MAIN), None),
                {
                    **{
                        f"{policy}/{k}": v
                        for policy, _, found in reports
                        if policy != MAIN
                        for k, v in found.items()
                    },
                    **buffer.metrics(step),
                    **method.measure(groups, context.collector.decode),
                },
            )
            row |= context.serve_weights()
            row |= context.clock()
            row |= context.evaluate(step) if context.is_due(step) else {}
            row |= context.judge(step, row)
            context.record(step, row)
            tell(method.state, step, row)
            if context.is_due(step):
                context.save(step)
            context.show(step, row)


def make_updates(
    policies: Policies, buffer: Buffer, update: CriticUpdate, job: Job, step: int, seed: int
) -> tuple[str, StepReport | None, Mapping[str, float]]:
    """Make the updates that `update` asks for; return the policy, the last report and its metrics."""
    report: StepReport | None = None
    metrics: dict[str, float] = {}
    for number in range(update.num_updates):
        episodes = buffer.draw(derive_seed(seed, number))
        credit = update.target(episodes, token_values(policies, episodes))
        report = learn(
            policies,
            credit,
            update.update,
            job,
            step=step,
            seed=derive_seed(seed, number, "order"),
            policy=update.policy,
        )
        metrics = {**credit.metrics, **(report.metrics if report else {})}
    return update.policy, report, metrics


def token_values(policies: Policies, groups: Sequence[Group]) -> dict[str, Critic]:
    """Return what every policy with a value head says of the scored episodes of `groups`, by name."""
    return {
        name: policy.token_values(scored(groups))
        for name, policy in policies.items()
        if policy.forward.value_head is not None
    }
