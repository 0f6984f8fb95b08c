"""AutoGLM (arXiv 2411.00820): a planner and a grounder learn in turn, then by a curriculum of tasks.

The planner says what to do in words, ``do(click, save)``; the grounder sees these words and the screen, never the task,
and says where that is (`quintain.agents.grounded`). What the grounder learns needs no expert: `wanderings` of every
task are played in which the plan is a click on any thing, and where things are the environment knows.

Then RL, from easy tasks to hard ones (WebRL, 2411.02337). `oversample_factor` times as many tasks as are played are
looked at. What a task is worth is the mean success of the played tasks that begin most like it; those from `low` to
`high` are open, and go first, the more they are like a failure. The update is PPO's clip on advantages by group,
with a KL to the starting policy. Every `every` steps the own successes that the policy was sure of, though not
quite (perplexity from 1/.95 to 1/.5), are rehearsed beside the expert's episodes.

Differences to the paper, which gives no code: tasks are drawn by the environment, not written by a model from failures;
the critic that filters them is a mean over neighbours; outcomes are the environment's, without a reward model; the
policy's update is the clipped one, where WebRL fits β·log π/π_ref to advantages; perplexity is that under the policy
that played. Pre-training on noisy data and data of recoveries are left out. One model plays both seats unless
the setting ``seats.grounder`` names another policy. Measured on `screen`; the paper has the web and Android.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from quintain.agents.experience import likeness
from quintain.agents.grounded import FORM, GROUNDER, PLANNER
from quintain.config.ranges import NonNegativeFloat, PositiveInt, Share
from quintain.credit.group import group_relative
from quintain.curriculum.gates import open_first
from quintain.data import stages
from quintain.data.pipeline import Pipeline, PipelineResult, check_stage, weigh_stage
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Factory
from quintain.errors import ConfigError, DataError
from quintain.learning.train_config import ColdStart, GroupConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.imitation import imitation
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.methods.imitation.imitation_phase import ImitationPhase
from quintain.methods.imitation.supervised import choose_trajectories
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.loops.rounds import OptimizerSteps
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.rollout.initial_states import first_observation
from quintain.types import Group, Task, Trajectory, as_text, flatten_scored

SURE, UNSURE = 1 / 0.95, 1 / 0.5
"""Perplexities between which an own success is rehearsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of AutoGLM."""

    renamed: ClassVar[Mapping[str, str]] = {"reach": "oversample_factor"}
    """earlier names of options"""

    environment: str = "screen?interface=text"
    """An environment that can show its screen without the task."""
    agent: str = "grounded"
    demonstrations: int | str | None = 200
    """The expert's episodes, of a planner and a grounder; or a file, folder, run or data set of conversations."""
    wanderings: PositiveInt = 3
    """Episodes beside each of the expert's in which the plan is any click, of which the grounder alone learns."""
    low: Share = 0.05
    """Least success that is expected of a task which is open."""
    high: Share = 0.75
    """Most success that is expected of a task which is open."""
    oversample_factor: PositiveInt = 4
    """Times as many tasks as are played, among which open ones are looked for; 1: tasks as they come."""
    neighbours: PositiveInt = 8
    """Played tasks by which it is told what a task is worth, those that begin most like it."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight of the KL (k3) to the starting policy in the loss."""
    every: PositiveInt = 8
    """Steps of RL before each rehearsal."""
    updates: PositiveInt = 16
    """Optimizer steps of a rehearsal."""
    batch_size: PositiveInt = 16
    """Episodes of an optimizer step of a rehearsal, of each seat for itself."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        if self.demonstrations == 0:
            raise ConfigError(
                "demonstrations: got 0, and planner and grounder begin with them; give 1 or more"
            )
        if not self.low < self.high:
            raise ConfigError(f"low, high: got {self.low} and {self.high}; give low < high")
        if self.batch_size < 2:
            raise ConfigError(
                f"batch_size: got {self.batch_size}, half of which is the expert's; give 2 or more"
            )


def method(config: Config) -> OnPolicy:
    """Return AutoGLM as `config` describes it."""
    frontier = Frontier(find(config.environment), config.low, config.high, config.neighbours)

    def collect(collector: Collector, step: int) -> list[Group]:
        pool = collector.tasks(step, config.tasks * config.oversample_factor)
        return collector.sample(step, frontier.choose(pool, config.tasks), size=config.group_size)

    def experts(collector: Collector) -> list[Trajectory]:
        return [t for t in collector.demonstrations() if t.is_success]

    return OnPolicy(
        cold_start=ColdStart(
            choose=lambda shown, _: choose_imitated(shown),
            teachers=(noisy(0.0), *[noisy(1.0)] * config.wanderings),
        ),
        collect=collect,
        credit=lambda groups, _: group_relative(groups),
        update=Update(
            loss=combine((clip_ratio(), 1.0), (kl_penalty("k3"), config.kl_coef)),
            keeps_zeros=True,
            has_reference=True,
        ),
        companion=ImitationPhase(
            every=config.every,
            build=Pipeline(stages.keep_solved(), stages.perplexity(SURE, UNSURE)),
            base=experts,
            update=Update(loss=imitation(), is_on_policy=False),
            steps=OptimizerSteps(count=lambda _: config.updates, batch_size=config.batch_size),
        ),
        needs=Needs(reference=True, expert=not isinstance(config.demonstrations, str)),
        state=CombinedState(frontier),
        measure=lambda groups, _: measure_plans(groups, config.low, config.high),
    )


def choose_imitated(shown: Sequence[Trajectory]) -> PipelineResult:
    """Return what is imitated of what was `shown`, in the order of `pipeline`.

    Raises:
        DataError: nothing is left, or there is no grounder in what was shown.
    """
    if not any(turn.speaker == GROUNDER for t in shown for turn in t.turns):
        raise DataError(
            f"teaching a grounder: got {len(shown)} episodes without a turn of its own; let the agent be grounded"
        )
    return choose_trajectories(shown, pipeline(), "imitating a planner and a grounder")


def pipeline() -> Pipeline:
    """Return the expert's solved episodes, and all of those who wander → of these the grounder's turns alone.

    The index of an episode is the number of who showed it, the expert's is 0.
    """

    def weights(trajectory: Trajectory) -> list[float]:
        return [float(not trajectory.index or turn.speaker == GROUNDER) for turn in trajectory.turns]

    return Pipeline(
        check_stage(
            "solved",
            "is the expert's and did not solve its task",
            lambda e: bool(e.trajectory.index) or e.trajectory.is_success,
        ),
        weigh_stage("pointed", "has nothing that was pointed at", weights),
    )


class Frontier:
    """Which tasks are open, a state of a run: ``Frontier(find("screen"), .05, .75, 8).choose(pool, 8)``."""

    def __init__(self, make: Factory, low: float, high: float, neighbours: int, memory: int = 512) -> None:
        """Remember how the last `memory` groups began, and what came of them."""
        self._make, self._low, self._high, self._neighbours = make, low, high, neighbours
        self._played: deque[tuple[str, float]] = deque(maxlen=memory)

    def update(self, groups: Sequence[Group]) -> None:
        """Take in what became of the tasks of a step."""
        for group in groups:
            if own := [t for t in group.scored if t.turns]:
                success = sum(t.is_success for t in own) / len(own)
                self._played.append((as_text(own[0].turns[0].observation), success))

    def choose(self, pool: Sequence[Task], count: int) -> list[Task]:
        """Return `count` tasks of `pool`: open ones, those first that are most like a failure, then others in order."""
        if len(pool) <= count or not self._played:
            return list(pool[:count])
        played = list(self._played)
        begins = [first_observation(self._make, task) for task in pool]
        return [
            pool[place]
            for place in in_order(begins, played, (self._low, self._high), self._neighbours)[:count]
        ]


def in_order(
    begins: Sequence[str], played: Sequence[tuple[str, float]], band: tuple[float, float], neighbours: int
) -> list[int]:
    """Return the places of all of `begins`: what is in `band` by how much it is like a failure, then the rest.

    Args:
        begins: how each task begins.
        played: how tasks that were played began, and the success in them.
        band: least and most success that is expected of an open task.
        neighbours: of `played`, those that are asked.
    """
    near = [[(likeness(text, other), success) for other, success in played] for text in begins]
    worths = [expect_success(own, neighbours) for own in near]
    return open_first(worths, [like_failure(own) for own in near], band)


def like_failure(near: Sequence[tuple[float, float]]) -> float:
    """Return how much a task is like one that failed; `near` is (likeness, success) of each that was played."""
    return max((alike * (1 - success) for alike, success in near), default=0.0)


def expect_success(near: Sequence[tuple[float, float]], neighbours: int) -> float:
    """Return the mean success of the `neighbours` most alike of `near`, (likeness, success) each; of equals the older.

    Example: (.9, 1), (.2, 1), (.5, 0) with 2 neighbours → .5.
    """
    asked = sorted(near, key=lambda each: -each[0])[:neighbours]
    return sum(success for _, success in asked) / len(asked)


def measure_plans(groups: Sequence[Group], low: float, high: float) -> Mapping[str, float]:
    """Return the share of plans that cannot be read, and of tasks whose success lay from `low` to `high`."""
    plans = [turn.action.text for t in flatten_scored(groups) for turn in t.turns if turn.speaker == PLANNER]
    rates = [sum(t.is_success for t in g.scored) / len(g.scored) for g in groups if g.scored]
    return {
        "autoglm/unreadable": sum(FORM.fullmatch(text) is None for text in plans) / max(len(plans), 1),
        "autoglm/open": sum(low <= rate <= high for rate in rates) / max(len(rates), 1),
    }


def count_blame(plain: Sequence[bool], planned: Sequence[bool], pointed: Sequence[bool]) -> dict[str, int]:
    """Return how many failures are the planner's, the grounder's, or of both: each failure is of exactly one kind.

    It is of a seat if an expert in its place mends it, and one in the place of the other does not.

    Args:
        plain: whether each task was solved.
        planned: whether it was with an expert as planner.
        pointed: whether it was with an expert as grounder.
    """
    kinds = [
        PLANNER if by_planner and not by_grounder else GROUNDER if by_grounder and not by_planner else "both"
        for solved, by_planner, by_grounder in zip(plain, planned, pointed, strict=True)
        if not solved
    ]
    return {kind: kinds.count(kind) for kind in (PLANNER, GROUNDER, "both")}
