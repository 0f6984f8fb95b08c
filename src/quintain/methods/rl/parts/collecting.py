"""Which episodes a step is made of: groups, one episode each of many tasks, groups that differ, fewer turns.

The one rule: what is collected depends on the run's seed and the step only, so that a repeated step repeats.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from quintain.data.filters import with_variance
from quintain.rollout.request import USUAL, Options
from quintain.training.work import Work
from quintain.types import Group


class Collection(Protocol):
    """A way to collect the episodes of a step that can be asked to play them otherwise, as `within_turns` does."""

    def __call__(self, work: Work, step: int, /, options: Options = USUAL) -> list[Group]:
        """Return the episodes of `step` as they are recorded, played as `options` say."""
        ...


def grouped(tasks: int, size: int) -> Collection:
    """Return the collection of `size` episodes of each of `tasks` tasks."""

    def collect(work: Work, step: int, /, options: Options = USUAL) -> list[Group]:
        return work.groups(step, tasks=tasks, size=size, options=options)

    return collect


def differing(tasks: int, size: int, *, attempts: int) -> Collection:
    """Return the collection of groups until `tasks` of them have different outcomes, in up to `attempts` draws.

    Dynamic sampling (DAPO, arXiv 2503.14476). All groups are returned and recorded, equal ones too; the credit
    leaves those without a difference at 0. What is sampled in excess of `tasks` differing groups is kept.
    """

    def collect(work: Work, step: int, /, options: Options = USUAL) -> list[Group]:
        drawn = work.curriculum.draw(step, tasks * attempts)
        groups: list[Group] = []
        for attempt in range(attempts):
            part = drawn[attempt * tasks : (attempt + 1) * tasks]
            groups += work.sampled(step, part, size=size, options=options)
            if len(with_variance(groups)) >= tasks:
                break
        return groups

    return collect


def within_turns(collect: Collection, turns: Callable[[int], int | None]) -> Collection:
    """Return `collect` with episodes of at most `turns`(step) turns (None: the environment's own limit).

    Evaluations keep the environment's limit. An episode that this limit cuts is truncated, not terminated.
    """

    def limited(work: Work, step: int, /, options: Options = USUAL) -> list[Group]:
        limits = replace(options.limits or work.rollout.limits, max_turns=turns(step))
        return collect(work, step, options=replace(options, limits=limits))

    return limited
