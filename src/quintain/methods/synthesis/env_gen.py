"""EnvGen (arXiv 2403.12014): practises in worlds that are laid out for its weak skills, in cycles.

Each cycle begins with configurations of the world for skills that the agent fails at, written by a model or drawn. Some
steps are played in these, then as many in the original world, whose outcomes say how well each skill is known when the
next configurations are asked for. After the last cycle all steps are played in the original world. So a model is asked
once a cycle, not once a step.

A configuration says what the agent starts with and how rare things are (`Configurable`); dynamics, reward and end stay
what they are. It is repaired where the world knows how, and refused where it does not fit its schema, hands its skill
over, or cannot be solved by the world's expert; what is missing then is drawn. Evaluations see the original world.

Differences to the paper: `generator="weakest"`, the default, needs no model: skills are drawn in proportion to their
failures, and configurations at random among those that can be solved; the policy learns by groups (GRPO), where the
paper has PPO; skills are measured in the training episodes of the original world, not in separate ones; a configuration
names the skill that it is for. To its code, which gives tools for names that contain "stone" and counts no refusals:
whole names here. Measured on `craft`, where the paper has Crafter and Heist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from quintain.config.ranges import NonNegativeInt, PositiveInt
from quintain.credit.group import group_relative
from quintain.curriculum.skills import Known, Report, count_skills, draw_weak
from quintain.engines.chat_client import is_endpoint
from quintain.environments.catalog import find
from quintain.environments.protocol import Factory
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector, CombinedState
from quintain.rollout.configurations import (
    NUM_TRIED,
    Designer,
    as_configurable,
    check_configurations,
    draw_configurations,
    skills_of,
)
from quintain.types import Group, Task, derive_seed

WEAKEST, RANDOM = "weakest", "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of EnvGen."""

    environment: str = "craft?depth=3"
    """An environment that can be laid out (`Configurable`) and has an expert."""
    cycles: NonNegativeInt = 4
    """Times that configurations are asked for; 0: the original world alone."""
    configurations: PositiveInt = 4
    """Configurations of a cycle."""
    generated_steps: PositiveInt = 4
    """Steps of a cycle that are played in them."""
    original_steps: PositiveInt = 4
    """Steps of a cycle that are played in the original world then."""
    generator: str = WEAKEST
    """Who writes configurations: weakest for a draw by failures, random for a draw without feedback, or the chat
    endpoint of a model, http://…/v1?model=NAME, where tape= lets a resumed run hear the same."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        if self.generator not in (WEAKEST, RANDOM) and not is_endpoint(self.generator):
            raise ConfigError(
                f"generator: got {self.generator!r}; give {WEAKEST}, {RANDOM}, or http://127.0.0.1:8000/v1?model=NAME"
            )
        if self.cycles and self.tasks < self.configurations:
            raise ConfigError(
                f"tasks: got {self.tasks} with {self.configurations} configurations, each of which is to be played in "
                "every step; give as many tasks or more"
            )
        if self.cycles and self.max_staleness:
            raise ConfigError(
                f"generator: got max_staleness {self.max_staleness}, which plays tasks ahead that nobody has laid out "
                "yet; leave it at 0"
            )
        try:
            designer_of(self.generator)
        except UsageError as error:
            raise ConfigError(str(error)) from error


def method(config: Config) -> OnPolicy:
    """Return EnvGen as `config` describes it."""
    cycles = Cycles(find(config.environment), config)
    return OnPolicy(
        collect=lambda collector, step: collector.sample(
            step, cycles.lay_out(collector, step), size=config.group_size
        ),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(), aggregation="sequence_mean"),
        state=CombinedState(cycles),
        measure=lambda _, __: cycles.measure(),
    )


def designer_of(generator: str) -> Designer | None:
    """Return the model that writes configurations; None where they are drawn."""
    return Designer(generator) if is_endpoint(generator) else None


class Cycles:
    """Where a run is in its cycles, a state of it: configurations, and what the original world says of each skill.

    All of it follows from the recorded groups, so a resumed run asks nobody again for a cycle that has begun.

    Raises:
        UsageError: the environment cannot be laid out.
    """

    def __init__(self, make: Factory, config: Config) -> None:
        self.make, self.config = make, config
        with closing(make()) as environment:
            as_configurable(environment)
        self.designer = designer_of(config.generator)
        self.report: dict[str, Known] = {}
        """of the original steps of the last cycle that ended"""
        self.tries: list[tuple[str, bool]] = []
        """(skill, success) of this cycle's original steps so far"""
        self.laid_out: list[Mapping[str, Any]] = []
        """the data of this cycle's configurations"""
        self.done = 0
        self.num_refused = self.num_drawn = 0

    @property
    def length(self) -> int:
        """Steps of a cycle."""
        return self.config.generated_steps + self.config.original_steps

    def is_generated(self, step: int) -> bool:
        """Whether `step`, from 1 on, is played in configurations."""
        cycle, place = divmod(step - 1, self.length)
        return cycle < self.config.cycles and place < self.config.generated_steps

    def lay_out(self, collector: Collector, step: int) -> list[Task]:
        """Return the tasks of `step`: the original ones, or each of them laid out by a configuration in turn."""
        tasks = collector.tasks(step, self.config.tasks)
        if not self.is_generated(step):
            return tasks
        if (step - 1) % self.length == 0:
            self.laid_out = self.write(tasks[:NUM_TRIED], collector.seed("configurations", step))
        return [
            replace(task, id=f"{task.id}?configuration={number}", data={**task.data, **data})
            for place, task in enumerate(tasks)
            for number in [place % len(self.laid_out)]
            for data in [self.laid_out[number]]
        ]

    def write(self, tasks: Sequence[Task], seed: int) -> list[Mapping[str, Any]]:
        """Return the data of new configurations, each solved by the expert on `tasks`.

        Raises:
            UsageError: the environment cannot be laid out, or no configuration of a skill can be solved.
            DataError: the model does not answer.
        """
        count = self.config.configurations
        with closing(self.make()) as environment:
            world = as_configurable(environment)
            sound: list[Mapping[str, Any]] = []
            self.num_refused = 0
            if self.designer is not None:
                written = self.designer.write(world, self.report, self.laid_out, count, seed)
                made = check_configurations(environment, written, tasks, count)
                sound, self.num_refused = list(made.sound), len(made.refused)
            self.num_drawn = count - len(sound)
            report: Report = {} if self.config.generator == RANDOM else self.report
            weak = draw_weak(report, world.skills(), self.num_drawn, derive_seed("skills", seed))
            return sound + draw_configurations(environment, weak, tasks, seed)

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step: its configurations, or what it says of skills."""
        cycle, place = divmod(self.done, self.length)
        self.done += 1
        if cycle >= self.config.cycles:
            return
        if place < self.config.generated_steps:
            if place == 0:
                self.laid_out = [group.task.data for group in groups[: self.config.configurations]]
                self.tries = []
            return
        skills = skills_of(self.make, [group.task for group in groups])
        self.tries += [
            (skill, t.is_success) for skill, group in zip(skills, groups, strict=True) for t in group.scored
        ]
        if self.done % self.length == 0:
            self.report = count_skills(self.tries)

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Take in what was refused and drawn in this cycle, where it is told to a resumed run."""
        self.num_refused = int(metrics.get("env_gen/refused", 0))
        self.num_drawn = int(metrics.get("env_gen/drawn", 0))

    def measure(self) -> Mapping[str, float]:
        """Return what this step was, what became of what was written, and the weakest skill of the last report."""
        cycle, _ = divmod(self.done - 1, self.length)
        rates = [known.rate for known in self.report.values()]
        return {
            "env_gen/cycle": float(min(cycle, self.config.cycles)),
            "env_gen/is_generated": float(self.is_generated(self.done)),
            "env_gen/refused": float(self.num_refused),
            "env_gen/drawn": float(self.num_drawn),
            **({"env_gen/weakest": min(rates)} if rates else {}),
        }
