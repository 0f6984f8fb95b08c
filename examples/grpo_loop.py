"""GRPO (arXiv 2402.03300) as one loop that is read from its tasks to its new weights.

A = (R - mean of the group) / std, L = -Σ w · min(r A, clip(r, 0.8, 1.28) A), r = π / π at sampling. This is what
`quintain train grpo` does by its defaults, written out; a test holds the two to the same weights, bit for bit. The
method is made of parts that others share, and can do besides: several policies, ranks, epochs, a KL, branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.methods import GroupConfig, Needs
from quintain.methods.loops.requirements import begin_run
from quintain.store.run import Run
from quintain.types import Batch, Credit, Group, LossReport, Outputs, Trajectory

LOW, HIGH = 0.2, 0.28
"""The ratio is clipped at 1 - LOW and 1 + HIGH."""
RISE = 10
"""Steps over which the learning rate rises."""


@dataclass(frozen=True, kw_only=True)
class Config(GroupConfig):
    """`tasks` in a step, `group_size` episodes of each, and what every run takes: steps, model, environment, …"""


def compare(groups: Sequence[Group]) -> Credit:
    """Return for every sampled token how much better its episode was than its group; 0 where all are equal."""
    trajectories: list[Trajectory] = []
    advantages: list[tuple[NDArray[np.float32], ...]] = []
    for group in groups:
        rewards = np.array(group.returns)
        scale = rewards.std(ddof=1) + 1e-6 if len(set(group.returns)) > 1 else np.inf
        for trajectory, reward in zip(group.scored, group.returns, strict=True):
            sampled = [len(turn.completion.token_ids) for turn in trajectory.turns]
            better = (reward - rewards.mean()) / scale
            trajectories.append(trajectory)
            advantages.append(tuple(np.full(num, better, np.float32) for num in sampled))
    return Credit(trajectories=tuple(trajectories), advantages=tuple(advantages))


def clip(outputs: Outputs, batch: Batch) -> LossReport:
    """Return the clipped surrogate of packed tokens [N]; their `loss_weight` averages over the step."""
    trained = batch.loss_weight > 0
    ratio = (outputs.logprobs - batch.logprobs).where(trained, 0.0).exp()
    term = -batch.advantages * ratio
    limited = -batch.advantages * ratio.clamp(1 - LOW, 1 + HIGH)
    total = (batch.loss_weight * term.maximum(limited).where(trained, 0.0)).sum()
    return LossReport(loss=total, metrics={"policy/loss": float(total.detach())})


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The method: what it needs of a run, and how it trains."""

    tasks: int
    group_size: int
    needs: Needs = field(default_factory=Needs)

    def train(self, run: Run, config: Config) -> None:
        """Train until ``config.steps``, continuing where `run` was left."""
        with begin_run(self.needs, config, run) as context:
            policy = context.policies.main
            learner = policy.learner
            assert learner is not None, "the main policy of a run is trained"
            for step in context.steps():
                tasks = context.collector.tasks(step, self.tasks)
                groups = context.collector.sample(step, tasks, size=self.group_size)
                credit = compare(groups)
                streams = [stream for stream in samples_from(credit) if stream.advantages.any()]
                report = None
                if streams:
                    batches = micro_batches(
                        streams, max_tokens=policy.pass_size.max_tokens, aggregation="sequence_mean"
                    )
                    report = learner.step(batches, clip, rate_scale=min(step / RISE, 1.0), is_on_policy=True)
                row = context.measure(groups, report, credit.metrics)
                context.finish_step(step, row)


def method(config: Config) -> Loop:
    """Return the method as `config` describes it."""
    return Loop(tasks=config.tasks, group_size=config.group_size)
