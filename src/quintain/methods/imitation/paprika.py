"""Paprika (arXiv 2502.17543): prefers better own episodes, on kinds of tasks that teach most.

Each task is tried many times; the best episode (solved, then in fewest turns) is paired with worse ones. The loss is
DPO on summed log-probs and α times the mean likelihood of the better side (RPO). Which kind of tasks comes next says a
bandit: the highest mean of ν = √Var R / E R, what is learnable, plus √(2 ln T / n).

Differences to the paper: pairs are made and learned from step by step, not once from all kinds; a better side is
imitated by the likelihood term alone, after the warm start; sampling is as diverse as `--temperature` says, without a
least probability. An episode's reward is its success, so ν of a kind that is never solved is 0, not 0/0. The
released code has no curriculum; its `regularized_dpo_trainer`, another objective, is not this. Measured on a table
of ten kinds of tasks, where the paper has ten text games.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.curriculum.levels import Chooser, Optimist, levels_in, take
from quintain.data.pairs import Pairs, check_pairs, join_pairs
from quintain.learning.train_config import GroupRoundsConfig
from quintain.learning.update import Update
from quintain.losses.preference import rpo
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.rewards.efficiency import num_turns
from quintain.types import Group, Pair, Score, Trajectory, derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupRoundsConfig):
    """Configuration of Paprika."""

    renamed: ClassVar[Mapping[str, str]] = {"reach": "oversample_factor"}
    """earlier names of options"""

    learning_rate: float = 1e-4
    tasks: PositiveInt = 4
    """Tasks of a step."""
    group_size: int = 20
    """Episodes of a task."""
    oversample_factor: PositiveInt = 8
    """Tasks that are looked at for each that is taken; a kind with fewer than are wanted gives fewer."""
    pairs: PositiveInt = 4
    """Worse episodes that the best of a task is paired with."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    imitation_weight: NonNegativeFloat = 1.0
    """α: weight of the better side's mean likelihood; 0 is DPO."""
    prefers_short: bool = True
    """Whether the shorter of two solved episodes is better; that teaches to guess where a guess may be right."""
    compares_ends: bool = False
    """Whether the last token of a turn is compared, too; it is imitated in any case."""


def method(config: Config) -> Rounds:
    """Return Paprika as `config` describes it."""
    chooser = Optimist()
    return Rounds(
        collect=curious(chooser, config.tasks, config.group_size, config.oversample_factor),
        reward=pay_solved,
        build=lambda groups: join_pairs(
            *(best_against_worse(group, config.pairs, prefers_short=config.prefers_short) for group in groups)
        ),
        update=Update(
            loss=rpo(config.beta, alpha=config.imitation_weight, compares_ends=config.compares_ends),
            has_reference=True,
            is_on_policy=False,
            lr_warmup=0,
        ),
        needs=Needs(reference=True),
        state=CombinedState(Outcomes(chooser)),
    )


class Outcomes:
    """Tells a chooser successes alone: ``Outcomes(Optimist())``."""

    def __init__(self, chooser: Optimist) -> None:
        self.chooser = chooser

    def update(self, groups: Sequence[Group]) -> None:
        """See `State.update`."""
        self.chooser.update(pay_solved(groups))


def curious(chooser: Chooser, tasks: int, size: int, reach: int) -> Callable[[Collector, int], list[Group]]:
    """Return the collection of `size` episodes of each of the tasks whose kinds `chooser` chooses."""

    def collect(collector: Collector, step: int) -> list[Group]:
        pool = collector.tasks(step, tasks * reach)
        kinds = chooser.choose(sorted(levels_in(pool)), tasks, collector.seed("kinds", step))
        return collector.sample(step, take(pool, kinds), size=size)

    return collect


def pay_solved(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` whose outcomes are 1 where the task was solved, else 0."""

    def pay(trajectory: Trajectory) -> Trajectory:
        if not isinstance(trajectory.outcome, Score):
            return trajectory
        return replace(trajectory, outcome=replace(trajectory.outcome, value=float(trajectory.is_success)))

    return [replace(group, trajectories=tuple(map(pay, group.trajectories))) for group in groups]


def best_against_worse(group: Group, count: int, *, prefers_short: bool = True) -> Pairs:
    """Return the best episode of `group` against `count` that rank lower, drawn by its seed; none without success.

    Success ranks first, then few turns if it `prefers_short`. What cannot be learned from is refused before it is drawn
    from (`quintain.data.pairs`).
    """
    if not any(trajectory.is_success for trajectory in group.scored):
        return Pairs(())

    def rank(trajectory: Trajectory) -> tuple[float, int]:
        return float(trajectory.is_success), -num_turns(trajectory) if prefers_short else 0

    best = max(group.scored, key=rank)
    # Two that were solved have one outcome, so that margins say nothing.
    found = check_pairs(
        (
            Pair(chosen=best, rejected=other, margin=float(best.is_success) - float(other.is_success))
            for other in group.scored
            if rank(other) < rank(best)
        ),
        margin=None,
    )
    drawn = random.Random(derive_seed("worse", best.seed)).sample(found.pairs, min(count, len(found)))
    return Pairs(tuple(drawn), found.refused)
