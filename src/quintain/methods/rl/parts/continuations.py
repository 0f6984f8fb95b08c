"""Values of states as the mean return of episodes that the policy plays on from there."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from quintain.credit.layout import outcome_of
from quintain.credit.step_value import return_from
from quintain.methods.loops.on_policy import Branch, Branches
from quintain.methods.method import Collector
from quintain.rollout.replay import prefixes_of
from quintain.types import Group, derive_seed, flatten_scored


def continue_turns(rollouts: int) -> Branch:
    """Return what continues every scored trajectory from before each of its turns but the first, `rollouts` times."""

    def branch(collector: Collector, step: int, groups: Sequence[Group]) -> Branches:
        trajectories = flatten_scored(groups)
        places = [(i, n) for i, t in enumerate(trajectories) for n in range(1, len(t.turns))]
        if not places:
            return {}
        prefixes = prefixes_of(collector.replay_episodes(trajectories), first=1)
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
    for place, trajectory in enumerate(flatten_scored(groups)):
        own = [first[id(trajectory)]]
        for number in range(1, len(trajectory.turns)):
            returns = [return_from(t, number) for t in branches[place, number].scored]
            own.append(fmean(returns) if returns else return_from(trajectory, number))
        values.append(own)
    return values
