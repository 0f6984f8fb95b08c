"""PGPO (arXiv 2506.01475): prefers the better of two plans in pseudocode, with its way.

L = -log σ(β [log π/π_ref (better plan and way) - log π/π_ref (worse)]) + NLL of the better.

Planning-guided preference optimization: an agent writes a plan in pseudo-code before it acts, ``go(to fridge)``, and
learns which plans are better than others. Two rewards say so: planning-driven, the outcome of the whole episode that
began with the plan; and planning-following, the mean outcome of `rollouts` episodes that the *starting* policy plays
from there on, which tells a bad plan from bad luck. The expert's episode and one of the agent's are a pair where both
rewards differ by more than `margin` and agree; its sides begin with the plan. Scorer and reference are the starting
policy in all rounds.

Differences to the paper: the plan is a turn of its own before the first action (harness `plan`), and following is
measured after it, where the paper measures it after the first turn, which holds both; plans that are imitated are the
expert's own way, call by call, where the paper lets a teacher sum them up; the better side's likelihood is summed as
the code has it (``likelihood="mean"`` is per token, see IPR); ties are no pairs, where the code says "at least" and
thresholds of 0 make wins of them; each round trains on its own pairs, where the code takes those of the first iteration
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from quintain.agents.catalog import check as parts_of
from quintain.agents.plan import Plan, are_calls, edit, verbs, whole_plan
from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import step_pairs
from quintain.errors import ConfigError
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.losses.preference import dpo, rpo
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, Needs
from quintain.methods.preference.exploring import Experts, explore_shown
from quintain.methods.preference.step_values import parts_at, value_steps
from quintain.methods.preference.updating import update_on_pairs
from quintain.rollout.replay import ReplayedEpisode
from quintain.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of PGPO."""

    renamed: ClassVar[Mapping[str, str]] = {"tries": "group_size"}
    """earlier names of options"""

    agent: str = "plan?demonstrates=calls"
    """Harness with a planner in front: plan, and options of it."""
    tasks: PositiveInt = 64
    group_size: PositiveInt = 1
    """Episodes that the policy makes of each task."""
    rollouts: PositiveInt = 5
    """Episodes of the starting policy that say how well a plan can be followed."""
    margin: NonNegativeFloat = 0.5
    """Difference of both rewards above which two plans are a pair."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    likelihood: Literal["sum", "mean", "none"] = "sum"
    """The better side's likelihood in the loss: its sum (as the code has it), its mean per token, or none."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        PreferenceRoundsConfig.check(self)
        plans = [part.options for part in parts_of(self.agent) if part.name == "plan"]
        if (
            not plans
            or plans[0].get("actor", "policy") != "policy"
            or plans[0].get("demonstrates") != "calls"
        ):
            raise ConfigError(
                f"agent: got {self.agent!r}; PGPO learns from plans in calls: give plan?demonstrates=calls, with a "
                "harness after it if need be"
            )


def method(config: Config) -> Rounds:
    """Return PGPO as `config` describes it."""
    loss = (
        dpo(config.beta)
        if config.likelihood == "none"
        else rpo(config.beta, is_summed=config.likelihood == "sum")
    )

    def collect(collector: Collector, step: int) -> Collected:
        groups, experts = explore_shown(collector, step, config.tasks, config.group_size)
        steps = value_steps(collector, step, find_plans(collector, groups, experts), config.rollouts)
        return Collected(
            groups=groups,
            data=[step_pairs(steps.deviations, margin=config.margin)],
            metrics=steps.metrics("pgpo"),
        )

    return Rounds(
        collect=collect,
        update=update_on_pairs(loss),
        needs=Needs(branches=True, expert=True, reference=True, reference_acts=True),
        measure=lambda groups, _: measure_adherence(groups),
    )


def find_plans(
    collector: Collector, groups: Sequence[Group], experts: Experts
) -> list[tuple[ReplayedEpisode, int, Trajectory]]:
    """Return the agent's plans in `groups` beside the expert's of the same task, where they are others."""
    walks = {
        walk.trajectory.task.id: walk for walk in collector.replay_episodes(list(experts.by_task.values()))
    }
    return [
        (walks[group.task.id], 0, agent)
        for group in groups
        if group.task.id in walks
        for agent in group.scored
        if parts_at(walks[group.task.id].trajectory, agent, 0)
    ]


def measure_adherence(groups: Sequence[Group]) -> Mapping[str, float]:
    """Return the share of plans that are calls, and that of actions whose verb the plan calls (adherence)."""
    plans, actions = list[bool](), list[bool]()
    for group in groups:
        for trajectory in group.scored:
            plan = plan_of(trajectory)
            plans.append(are_calls(plan))
            said = verbs(plan)
            acted = [turn.action for turn in trajectory.turns if not turn.is_internal]
            actions += [verbs(whole_plan([action], names=False)) <= said for action in acted]
    return {
        **({"pgpo/calls": sum(plans) / len(plans)} if plans else {}),
        **({"pgpo/adherence": sum(actions) / len(actions)} if actions else {}),
    }


def plan_of(trajectory: Trajectory) -> Plan:
    """Return the plan that an episode began with."""
    return edit(Plan(), trajectory.turns[0].action.text) if trajectory.turns else Plan()
