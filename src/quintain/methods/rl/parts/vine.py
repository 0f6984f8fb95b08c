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

from quintain.credit.layout import outcome_of
from quintain.credit.step_value import return_from, step_value
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rollout.replay import every_turn
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Group, derive_seed, scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of VinePPO."""

    tasks: int = 4
    """Tasks of a step."""
    group_size: int = 4
    """Episodes of a task."""
    rollouts: int = 3
    """Episodes that are continued from each state."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""


def method(config: Config) -> Method:
    """Return VinePPO as `config` describes it."""
    return Method(
        collect=grouped(config.tasks, config.group_size),
        credit=lambda work, groups: step_value(groups, state_values(work, groups, config.rollouts)),
        update=policy_update(clipped(), Plan(updates=config.updates)),
        needs=Needs(snapshots=True),
    )


def state_values(work: Work, groups: Sequence[Group], rollouts: int) -> list[list[float]]:
    """Return the value of the state before each turn of each scored trajectory of `groups`, in order.

    A state that no continuation of succeeded in running has the return that was seen from it.
    """
    trajectories = scored(groups)
    if not trajectories:
        return []
    first = {id(t): fmean(map(outcome_of, group.scored)) for group in groups for t in group.scored}
    prefixes = every_turn(work.rollout.walks(trajectories), first=1)
    seed = derive_seed("values", trajectories[0].seed)
    found = iter(work.rollout.continuations(prefixes, size=rollouts, seed=seed) if prefixes else [])
    values: list[list[float]] = []
    for trajectory in trajectories:
        own = [first[id(trajectory)]]
        for number in range(1, len(trajectory.turns)):
            group = next(found)
            work.count(group.trajectories, num_known=number)
            returns = [return_from(t, number) for t in group.scored]
            own.append(fmean(returns) if returns else return_from(trajectory, number))
        values.append(own)
    return values


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
