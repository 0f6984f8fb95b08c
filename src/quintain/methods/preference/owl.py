"""OWL (arXiv 2505.23885): a planner prefers those of its plans that led workers to success.

L = -log σ(β [log π/π_ref (plans that led to success) - log π/π_ref (that did not)]).

Workforce: a planner takes a task apart, workers do the parts, and when one fails the planner is told and plans
again. The planner alone is trained, first by imitation of episodes that solved their task, then by preferences: of
`group_size` episodes of a task the best against the worst. Its tokens alone have a gradient, whatever the workers
say; so workers can be exchanged, for a tool or a model that the planner has never seen.

The planner is the role ``agent/plan`` of the harness `plan`, who does the parts plays ``agent``: by default the policy
``worker``, a copy of the start that rests (``policies.worker.model`` names another). After `replan_every` actions of
theirs the planner sees what came of them, errors of tools among it, and revises what is left of the plan, at most
`max_replans` times. What a tool refuses a worker is nobody's reward: episodes are compared by their outcomes.

With ``agent="workforce?workers=mover:go;maker:gather,make"`` the planner is a seat of its own (`planner`), a
`coordinator` gives out its parts by the cards of the workers, each of them a seat, too, and the plan is made anew when
one of them says that it failed (`quintain.agents.workforce`).

Differences to the paper: with `plan` one worker, no coordinator, and a plan that is revised after a number of actions;
outcomes are the environment's, not a judge's; episodes that are imitated are the expert's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar

from quintain.agents import workforce
from quintain.agents.catalog import check as parts_of
from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import best_and_worst
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, PolicySpec, PreferenceRoundsConfig
from quintain.losses.preference import dpo
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Needs, sample_groups
from quintain.methods.preference.roles import ACTOR, PLANNER, check_roles
from quintain.methods.preference.updating import update_on_pairs
from quintain.types import Group, Turn, flatten_scored

WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of OWL."""

    renamed: ClassVar[Mapping[str, str]] = {"tries": "group_size"}
    """earlier names of options"""

    agent: str = "plan?demonstrates=calls&replan_every=4&max_replans=3"
    """Harness with a planner in front: plan, and options of it."""
    seats: Mapping[str, str] = field(default_factory=lambda: {ACTOR: WORKER, PLANNER: MAIN})
    """Who plans, agent/plan, and who does the parts, agent: a policy that rests."""
    steps: int = 1
    tasks: PositiveInt = 128
    group_size: PositiveInt = 4
    """Episodes of a task, of which the best and the worst are compared."""
    margin: NonNegativeFloat = 0.0
    """Difference of outcomes above which two episodes are a pair."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting planner."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        PreferenceRoundsConfig.check(self)
        (*_, innermost) = parts_of(self.agent)
        if innermost.name != "workforce":
            check_roles(self.agent, self.seats)
        elif [seat for seat, policy in self.seats.items() if policy == MAIN] != [workforce.PLANNER]:
            raise ConfigError(
                f"seats: got {dict(self.seats)} of a workforce; let {MAIN!r} play {workforce.PLANNER} alone and "
                f"another policy, such as {WORKER!r}, the coordinator and each worker"
            )


def method(config: Config) -> Rounds:
    """Return OWL as `config` describes it."""
    return Rounds(
        collect=sample_groups(config.tasks, config.group_size),
        build=lambda groups: best_and_worst(keep_groups_of(groups, MAIN), margin=config.margin),
        update=update_on_pairs(dpo(config.beta)),
        needs=Needs(reference=True, others={WORKER: PolicySpec()}),
        measure=measure_plans,
    )


def keep_groups_of(groups: Sequence[Group], policy: str) -> list[Group]:
    """Return those of `groups`, as `split_seats` makes them, in which `policy` sampled everything."""
    return [
        group
        for group in groups
        if group.trajectories
        and all(turn.completion.policy == policy for t in group.trajectories for turn in t.turns)
    ]


def measure_plans(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Return the plans of an episode, and the share of the workers' actions that could not be carried out."""
    played = flatten_scored(groups)
    plans = [float(sum(map(is_plan, t.turns))) for t in played]
    acted = [float(not turn.is_valid) for t in played for turn in t.turns if not is_plan(turn)]
    return {
        **({"owl/plans": fmean(plans)} if plans else {}),
        **({"owl/worker_errors": fmean(acted)} if acted else {}),
    }


def is_plan(turn: Turn) -> bool:
    """Return whether `turn` is the planner's."""
    return turn.is_internal or turn.speaker == workforce.PLANNER
