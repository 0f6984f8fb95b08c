"""A_k = r_k + V(s_{k+1}) - V(s_k), V the mean return of episodes continued from the state: VinePPO (arXiv
2410.01679).

The environment is brought back to the state before a turn (`Snapshot`), and the policy plays on from there a
few times. That is a value without a critic and its errors, at the price of more episodes, which count in a
budget. The value of the first state is the mean of the group.

Differences to the paper: steps are turns, not lines of reasoning; REINFORCE-like weights go through PPO's clip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from quintain.config.ranges import PositiveInt
from quintain.credit.layout import outcome_of
from quintain.credit.step_value import return_from, step_value
from quintain.learning.job import GroupJob
from quintain.losses.policy import clipped
from quintain.methods.method import Branch, Branches, Collector, Needs, OnPolicy, Update, grouped
from quintain.rollout.replay import every_turn
from quintain.types import Group, derive_seed, scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of VinePPO."""

    tasks: PositiveInt = 4
    """Tasks of a step."""
    group_size: int = 4
    """Episodes of a task."""
    rollouts: PositiveInt = 3
    """Episodes that are continued from each state."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return VinePPO as `config` describes it."""
    return OnPolicy(
        collect=grouped(config.tasks, config.group_size),
        branch=continue_turns(config.rollouts),
        credit=lambda groups, estimates: step_value(groups, state_values(groups, estimates.branches)),
        update=Update(loss=clipped()),
        needs=Needs(branches=True, snapshots=True),
    )


def continue_turns(rollouts: int) -> Branch:
    """Return what continues every scored trajectory from before each of its turns but the first, `rollouts` times."""

    def branch(collector: Collector, step: int, groups: Sequence[Group]) -> Branches:
        trajectories = scored(groups)
        places = [(i, n) for i, t in enumerate(trajectories) for n in range(1, len(t.turns))]
        if not places:
            return {}
        prefixes = every_turn(collector.walks(trajectories), first=1)
        seed = derive_seed("values", trajectories[0].seed)
        found = collector.continue_from(step, prefixes, size=rollouts, seed=seed)
        return dict(zip(places, found, strict=True))

    return branch


def state_values(groups: Sequence[Group], branches: Branches) -> list[list[float]]:
    """Return the value of the state before each turn of each scored trajectory of `groups`, in order.

    It is the mean return of the episodes in `branches` that were continued from there; a state that no continuation of
    succeeded in running has the return that was seen from it. The first state has the mean of the group.
    """
    first = {id(t): fmean(map(outcome_of, group.scored)) for group in groups for t in group.scored}
    values: list[list[float]] = []
    for place, trajectory in enumerate(scored(groups)):
        own = [first[id(trajectory)]]
        for number in range(1, len(trajectory.turns)):
            returns = [return_from(t, number) for t in branches[place, number].scored]
            own.append(fmean(returns) if returns else return_from(trajectory, number))
        values.append(own)
    return values
