"""PilotRL (arXiv 2508.00344): one model learns to follow plans, then to write them, then both together.

A_i = (R_i - mean) / std of the group, on the tokens of one role: those that act, then those of plans, then all.

AdaPlan is the harness: a plan for the whole task first, revised as the episode goes, and actions that follow it. Three
stages are a function of the step and of nothing else. In the first, plans are given, by an expert (`expert`), and who
acts is paid for the outcome, for keeping to the plan, and for actions that can be read. In the second the policy plans
itself, plans alone are trained, and are paid for the outcome and for how good they are. In the third both roles are
trained on outcome and form. A role that rests has no loss weight (`quintain.credit.roles`): its tokens are in no mean,
and neither a KL nor an entropy term reaches them. A plan that was given is read and never trained.

adherence = actions that do the next open step of the plan, in order / actions; quality = steps that were done / steps.

Differences to the paper: plans are given by the environment's expert, where a stronger model writes them; the quality
of a plan is counted, in the place of a model that judges whether it is right, can be followed and is in form; the
weights of rewards are not public, and these are ours. The model is one, so who acts changes while plans are trained, as
far as weights are shared. Measured on a relay as a table; the paper has six benchmarks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from quintain.agents.plan import Plan, does_step, edit, supply_plans
from quintain.config.ranges import NonNegativeFloat, NonNegativeInt
from quintain.credit.group import group_relative
from quintain.credit.roles import train_role
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.rewards.conduct import environment_reward, well_formed
from quintain.rewards.terms import Term, apply_all
from quintain.types import Credit, Group, Trajectory

Stage = Literal["follow", "plan", "both"]
PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of PilotRL."""

    environment: str = "plan?blocks=3"
    agent: str = "plan?replan_every=4&max_replans=2&demonstrates=calls"
    follow_steps: NonNegativeInt = 20
    """Steps of the first stage, in which plans are given and actions are trained."""
    plan_steps: NonNegativeInt = 20
    """Steps of the second stage, in which plans are trained; the third, in which all is, lasts."""
    adherence_weight: NonNegativeFloat = 0.5
    """Weight of keeping to the plan, in the first stage."""
    quality_weight: NonNegativeFloat = 0.5
    """Weight of the quality of a plan, in the second stage."""
    form_weight: NonNegativeFloat = 0.1
    """Weight of actions that can be read, in the first and the third stage."""


@dataclass(slots=True)
class StageState:
    """How many steps there were, a `State`, so that a resumed run is in the stage that it was in."""

    config: Config
    step: int = field(default=0)

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step."""
        self.step += 1


def stage_at(config: Config, step: int) -> Stage:
    """Return the stage of `step`, counted from 1."""
    if step <= config.follow_steps:
        return "follow"
    return "plan" if step <= config.follow_steps + config.plan_steps else "both"


def method(config: Config) -> OnPolicy:
    """Return PilotRL as `config` describes it."""
    state = StageState(config)
    given: dict[str, Plan] = {}

    def collect(collector: Collector, step: int) -> list[Group]:
        if stage_at(config, step) != "follow":
            return collector.sample(step, collector.tasks(step, config.tasks), size=config.group_size)
        shown = collector.expert_episodes(collector.expert_tasks(step, config.tasks))
        given.clear()
        given.update({t.task.id: first_plan(t) for t in shown})
        tasks = [t.task for t in shown]
        wrap = supply_plans(given)
        return collector.sample(step, tasks, size=config.group_size, agent=wrap)

    def reward(groups: Sequence[Group]) -> Sequence[Group]:
        return pay(groups, config, stage_at(config, state.step), given)

    def credit(groups: Sequence[Group], _: Estimates) -> Credit:
        return assign(groups, stage_at(config, max(state.step, 1)))

    return OnPolicy(
        collect=collect,
        reward=reward,
        credit=credit,
        update=Update(loss=clip_ratio(0.2, 0.2), aggregation="sequence_mean"),
        needs=Needs(expert=config.follow_steps > 0),
        state=CombinedState(state),
    )


def assign(groups: Sequence[Group], stage: Stage) -> Credit:
    """Return outcomes compared within their group, on the tokens of the role that `stage` trains."""
    credit = group_relative(groups)
    return credit if stage == "both" else train_role(credit, "act" if stage == "follow" else PLAN)


def pay(
    groups: Sequence[Group], config: Config, stage: Stage, given: dict[str, Plan] | None = None
) -> list[Group]:
    """Return `groups` with the rewards of `stage`; `given` are the plans of the first one, by the id of the task."""
    plans = {} if given is None else given

    def keep_to_plan(trajectory: Trajectory) -> float:
        done, actions, _ = follow_plan(trajectory, plans.get(trajectory.task.id, Plan()))
        return done / max(actions, 1)

    def judge_plan(trajectory: Trajectory) -> float:
        done, _, steps = follow_plan(trajectory)
        return done / max(steps, 1)

    own = {
        "follow": [Term(name="adherence", measure=keep_to_plan, weight=config.adherence_weight)],
        "plan": [Term(name="quality", measure=judge_plan, weight=config.quality_weight)],
        "both": [],
    }[stage]
    form = [] if stage == "plan" else [well_formed(config.form_weight)]
    return apply_all(groups, (environment_reward(), *own, *form))


def first_plan(trajectory: Trajectory) -> Plan:
    """Return the plan that an episode began with, an empty one where it has none."""
    return next((edit(Plan(), turn.action.text) for turn in trajectory.turns if turn.has_role(PLAN)), Plan())


def follow_plan(trajectory: Trajectory, given: Plan | None = None) -> tuple[int, int, int]:
    """Return the actions that did the next open step of the plan, all actions, and the steps of all plans.

    The plan is the one that was `given`, until the episode writes another. Steps that a revised plan ticks are not
    open, and those that it leaves as they were count once. Example: a, b, c given, and a, x, b done → 2, 3, 3.
    """
    plan = Plan() if given is None else given
    done = actions = 0
    steps = len(plan.steps)
    open_steps = [step.text for step in plan.steps if not step.is_done]
    for turn in trajectory.turns:
        if turn.has_role(PLAN):
            before, plan = {step.text for step in plan.steps}, edit(plan, turn.action.text)
            steps += sum(step.text not in before for step in plan.steps)
            open_steps = [step.text for step in plan.steps if not step.is_done]
        elif not turn.is_internal:
            actions += 1
            if open_steps and does_step(turn.action, open_steps[0]):
                done += 1
                open_steps.pop(0)
    return done, actions, steps
