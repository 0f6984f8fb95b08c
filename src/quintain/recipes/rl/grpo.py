"""A = (R - mean of the group) / std of the group, then the clipped policy gradient: GRPO (arXiv 2402.03300).

Several episodes of one task are a group; an episode is as good as it is better than its group. Every token
the policy sampled in it, over all turns, gets the same advantage.

Differences to the paper: outcome supervision over multi-turn episodes; clip-higher 0.28, as in DAPO (2503.14476);
no KL term; one update per step, so the ratio stays near 1. Groups that are all equal have no gradient: they are
left out, also of the mean over sequences, and a step of only such groups takes no optimizer step. The learning
rate rises over the first steps.
"""

from dataclasses import dataclass

from quintain.credit.group import Std, group_relative
from quintain.data.samples import samples_from
from quintain.losses.policy import clipped
from quintain.recipes.job import Job
from quintain.recipes.rl.informative import informative
from quintain.recipes.rl.rate import warming
from quintain.recipes.work import opened
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Job):
    """Configuration of GRPO."""

    tasks: int = 8
    """Tasks of a step."""
    group_size: int = 8
    """Episodes of a task."""
    std: Std = "unbiased"
    """Standard deviation that advantages are divided by; none leaves them undivided (Dr. GRPO, 2503.20783)."""
    clip_low: float = 0.2
    """The ratio is clipped below at 1 - this."""
    clip_high: float = 0.28
    """The ratio is clipped above at 1 + this."""


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    loss = clipped(low=config.clip_low, high=config.clip_high)
    with opened(config, run) as work:
        for step in work.steps():
            groups = work.groups(step, tasks=config.tasks, size=config.group_size)
            credit = group_relative(groups, std=config.std)
            samples = informative(samples_from(credit))
            batches = work.batches(samples, aggregation="sequence_mean") if samples else []
            report = (
                work.learner.step(batches, loss, rate_scale=warming(step), is_on_policy=True)
                if batches
                else None
            )
            work.commit(step, groups, report, credit.metrics)
