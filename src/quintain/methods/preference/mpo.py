"""MPO (arXiv 2503.02682): learns to write plans that help an actor, preferred by its outcomes.

L = -log σ(β [log π/π_ref (best plan) - log π/π_ref (worst plan)]).

Meta plan optimization: a planner writes how to go about a task, without names, and an actor that rests carries it out.
Of each task `plans` plans are sampled, and each is worth the mean outcome of `executions` episodes that the actor plays
with it; the best is preferred to the worst where they differ by more than `margin`. Tokens of plans alone are trained.
Plans are judged by who acts on them, so that what is learned is what helps that actor.

Planner and actor are the two roles of the harness `plan`: the policy writes the plan, the policy ``reference``, which
is the starting policy and never trained, does the rest, in evaluations too (`seats`). Both imitated the expert.

Differences to the paper: the actor begins as the planner does, not as a larger model (another is named by
``policies.reference.model``); plans that are shown are the verbs of the expert's own way, not a teacher's text; the
code knows no margin, and of equal plans takes the first: of five equally good plans with five runs each it makes pairs
in 99 of 100 tasks, with a margin of .5 in half of them. More than one round is possible, each with plans of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import Estimate, extremes
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, PreferenceRoundsConfig
from quintain.losses.preference import dpo
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, Needs
from quintain.methods.preference.roles import ACTOR, PLANNER, check_roles
from quintain.methods.preference.updating import update_on_pairs
from quintain.types import Group, Score, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of MPO."""

    agent: str = "plan?demonstrates=verbs"
    """Harness with a planner in front: plan, and options of it."""
    seats: Mapping[str, str] = field(default_factory=lambda: {ACTOR: "reference", PLANNER: MAIN})
    """Who writes plans, agent/plan, and who acts on them, agent: a policy that rests."""
    steps: int = 1
    tasks: PositiveInt = 64
    plans: int = 5
    """Plans of a task."""
    executions: PositiveInt = 5
    """Episodes that the actor plays with each plan."""
    margin: NonNegativeFloat = 0.5
    """Difference of worth above which two plans are a pair."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting planner."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        PreferenceRoundsConfig.check(self)
        if self.plans < 2:
            raise ConfigError(
                f"plans: got {self.plans}, and a plan alone is not better than another; give 2 or more"
            )
        check_roles(self.agent, self.seats)


def method(config: Config) -> Rounds:
    """Return MPO as `config` describes it."""

    def collect(collector: Collector, step: int) -> Collected:
        groups = collector.sample(step, collector.tasks(step, config.tasks), size=config.plans)
        plans, num_turns = judge_plans(collector, step, groups, config.executions)
        return Collected(
            groups=groups,
            data=[extremes(plans, margin=config.margin)],
            metrics=measure_plans(plans, num_turns),
        )

    return Rounds(
        collect=collect,
        update=update_on_pairs(dpo(config.beta)),
        needs=Needs(branches=True, reference=True),
    )


def judge_plans(
    collector: Collector, step: int, groups: Sequence[Group], executions: int
) -> tuple[list[list[tuple[Trajectory, float]]], int]:
    """Let the actor play on from each plan of `groups` until it has been carried out `executions` times.

    Returned are the plans, task by task, each with what it is worth to the actor, and how many turns were played for
    that beyond their own episodes.
    """
    own = [trajectory for group in groups for trajectory in group.scored]
    played: dict[int, Group] = {}
    longer = [each for each in own if len(each.turns) > 1]
    num_turns = 0
    if executions > 1 and longer:
        after = collector.continue_from(
            step,
            [walk.prefix(1) for walk in collector.replay_episodes(longer)],
            size=executions - 1,
            seed=collector.seed("plan values", step),
            phase="plan_values",
        )
        played = {id(each): group for each, group in zip(longer, after, strict=True)}
        num_turns = sum(len(t.turns) - 1 for group in after for t in group.trajectories)
    plans = [
        [(plan_of(each), worth(each, played.get(id(each))).mean) for each in group.scored] for group in groups
    ]
    return plans, num_turns


def measure_plans(plans: Sequence[Sequence[tuple[Trajectory, float]]], num_turns: int) -> Mapping[str, float]:
    """Return the mean worth of a plan, of the best less the worst of a task, and what judging cost."""
    values = [[value for _, value in family] for family in plans if family]
    return {
        "mpo/value_turns": float(num_turns),
        **({"mpo/worth": fmean(value for own in values for value in own)} if values else {}),
        **({"mpo/spread": fmean(max(own) - min(own) for own in values)} if values else {}),
    }


def plan_of(trajectory: Trajectory) -> Trajectory:
    """Return `trajectory` with its first turn alone, which is the plan."""
    return replace(trajectory, turns=trajectory.turns[:1])


def worth(trajectory: Trajectory, group: Group | None) -> Estimate:
    """Return what a plan is worth: the outcome of its own episode, and of those that were played on from it."""
    assert isinstance(trajectory.outcome, Score), "only scored episodes are judged"
    return Estimate((trajectory.outcome.value, *([] if group is None else group.returns)))
