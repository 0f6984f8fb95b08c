"""Which episodes a step is made of: groups, one episode each of many tasks, groups that differ, fewer turns.

The one rule: what is collected depends on the run's seed and the step only, so that a repeated step repeats.
"""

from collections.abc import Callable
from dataclasses import replace

from quintain.data.filters import with_variance
from quintain.methods.loops.method import Collect
from quintain.training.work import Work
from quintain.types import Group


def grouped(tasks: int, size: int) -> Collect:
    """Return the collection of `size` episodes of each of `tasks` tasks."""
    return lambda work, step: work.groups(step, tasks=tasks, size=size)


def differing(tasks: int, size: int, *, attempts: int) -> Collect:
    """Return the collection of groups until `tasks` of them have different outcomes, in up to `attempts` draws.

    Dynamic sampling (DAPO, arXiv 2503.14476). All groups are returned and recorded, equal ones too; the credit
    leaves those without a difference at 0. What is sampled in excess of `tasks` differing groups is kept.
    """

    def collect(work: Work, step: int) -> list[Group]:
        drawn = work.curriculum.draw(step, tasks * attempts)
        groups: list[Group] = []
        for attempt in range(attempts):
            groups += work.sampled(step, drawn[attempt * tasks : (attempt + 1) * tasks], size=size)
            if len(with_variance(groups)) >= tasks:
                break
        return groups

    return collect


def within_turns(collect: Collect, turns: Callable[[int], int | None]) -> Collect:
    """Return `collect` with episodes of at most `turns`(step) turns (None: the environment's own limit).

    Evaluations keep the environment's limit. An episode that this limit cuts is truncated, not terminated.
    """

    def limited(work: Work, step: int) -> list[Group]:
        usual = work.rollout.limits
        work.rollout.limits = replace(usual, max_turns=turns(step))
        try:
            return collect(work, step)
        finally:
            work.rollout.limits = usual

    return limited
