"""Trained planner: learns who is to do which step from what scripted workers achieve, and pays for every step.

R = 1 if the task is solved - min(λ · steps, the most that steps may cost), A = (R - mean) / std of the group.

The planner writes typed plans (`quintain.agents.routed`) under a grammar, workers carry them out and never change. It
is told their names and not what they can do, and reward comes with the end of the episode alone, so what it learns is
who can do what. Steps cost a little, so that of two plans that work the shorter is better; the most that they may cost
is below 1, so that no failure is ever above a success. With plans of one step (``routed?steps=1``) it is a router.

Differences to the source: it is a post on agents (a planner that is trained for executors that are given), which has no
formula and no code; credit, which is GRPO's, and price are ours. Measured on plans for `house` and three workers whose
competences are drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat
from quintain.credit.group import group_relative
from quintain.errors import ConfigError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups
from quintain.rewards.conduct import success
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Trajectory, flatten_scored

WORKERS = "anna:go,open,close;bert:go,take,put;cleo:go,clean,heat,cool,light"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of a trained planner."""

    environment: str = "house"
    agent: str = f"routed?workers={WORKERS}&shows_cards=false&masked=true"
    """Harness: a planner for scripted workers (routed); see the list of every method's."""
    step_cost: NonNegativeFloat = 0.02
    """λ: what a step of a plan costs."""
    max_cost: NonNegativeFloat = 0.5
    """The most that the steps of an episode cost, below 1."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        if self.max_cost >= 1:
            raise ConfigError(
                f"max_cost: got {self.max_cost:g}, so that failures may be above successes; give less than 1"
            )


def method(config: Config) -> OnPolicy:
    """Return the training of a planner as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(pay, config=config),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, 0.2), aggregation="sequence_mean"),
        measure=measure_steps,
    )


def pay(groups: Sequence[Group], config: Config) -> list[Group]:
    """Return `groups`, paid for success less what the steps of their plans cost."""
    cost = Term(name="steps", measure=count_steps, weight=-config.step_cost, cap=(-config.max_cost, 0.0))
    return apply_all(groups, (success(), cost))


def count_steps(trajectory: Trajectory) -> list[float]:
    """Return the steps of the plan of each turn: its lines, one at least."""
    return [float(max(1, len(turn.action.text.strip().splitlines()))) for turn in trajectory.turns]


def measure_steps(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Return the plans and the steps of an episode, and the fraction of turns that are no plan."""
    episodes = flatten_scored(groups)
    if not episodes:
        return {}
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "plan/plans": len(turns) / len(episodes),
        "plan/steps": fmean(sum(count_steps(episode)) for episode in episodes),
        "plan/invalid": fmean(not turn.is_valid for turn in turns),
    }
