"""Explore first, say in hindsight what was reached, learn that, and explore next what was not mastered: EXIF
(arXiv 2506.04287).

Alice, who is the policy, plays tasks of the environment. What an episode reached is made its task in hindsight
(`quintain.rollout.hindsight`), so that every task can be solved, by the episode that it came from; these episodes are
imitated. Then Bob, the policy as well, tries those tasks. How often he fails at each skill is told to Alice: in the
next round each of her prompts names one to explore, drawn in proportion to its failures.

Differences to the paper: what was reached says the environment (`achieved`), where the paper asks a language model for
an instruction, and adds no reasoning to it; the feedback is the name of a skill in the prompt, where the paper has a
critique in words; whether Bob succeeds says the environment; he tries the tasks of a round before he has learned from
it. What speaks of a skill to explore is taken out of the prompts before they are imitated. Measured on `craft`, where
the paper has WebShop and Crafter.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.agents.hints import Hints
from quintain.config.ranges import PositiveInt
from quintain.data import stages
from quintain.data.pipeline import Pipeline, Stage, judged
from quintain.errors import ConfigError
from quintain.losses.imitation import imitation
from quintain.methods.method import Collector, Folds, Rounds, Update
from quintain.methods.rl.parts.measures import Decode
from quintain.methods.selftraining.star import stripped
from quintain.training.job import OnPolicyJob
from quintain.types import Group, Task, Trajectory, scored

PERSONA = "Explore: {}."
"""What Alice is told beside her task."""
TRY = 1
"""The occasion in a round on which Bob tries what Alice made of her episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyJob):
    """Configuration of EXIF."""

    environment: str = "craft?depth=3&places=2"
    """An environment that says what an episode achieved."""
    tasks: PositiveInt = 64
    """Episodes that Alice explores in, each of another task."""
    has_feedback: bool = True
    """Whether Alice is told what Bob fails at; else she explores as her task says."""
    starts_over: bool = False
    """Train every round from the starting policy."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        OnPolicyJob.check(self)
        if self.plays_apart:
            raise ConfigError(
                f"rollout: got {self.rollout} with agent {self.agent}; Alice and Bob play in the same round, so use "
                "rollout=lockstep and an agent of the run's own"
            )


def method(config: Config) -> Rounds:
    """Return EXIF as `config` describes it."""
    explorer = Explorer(config.tasks, has_feedback=config.has_feedback)
    return Rounds(
        collect=explorer.collect,
        build=Pipeline(
            explored(), stages.relabelled(explorer.in_hindsight, name="hindsight"), stripped(explorer.hints)
        ),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        starts_over=config.starts_over,
        state=Folds(explorer),
        measure=explorer.measure,
    )


class Explorer:
    """Alice's tasks and Bob's failures: ``Explorer(64, has_feedback=True).collect(collector, step)``."""

    def __init__(self, tasks: int, *, has_feedback: bool) -> None:
        self.tasks, self.has_feedback = tasks, has_feedback
        self.failures: dict[str, float] = {}
        """share of Bob's tries of each skill that failed, in the round that tried it last"""
        self.hints = Hints()
        self._told: dict[str, Trajectory | None] = {}

    def collect(self, collector: Collector, step: int) -> list[Group]:
        """Return Alice's episodes, and Bob's tries of the tasks that these solved in hindsight."""
        tasks = collector.tasks(step, self.tasks)
        rng = random.Random(collector.seed("skills", step))
        self.hints.plain.clear()
        self.hints.texts = {
            task.id: PERSONA.format(skill)
            for task, skill in zip(tasks, drawn(self.failures, len(tasks), rng), strict=False)
        }
        is_told = self.has_feedback and bool(self.hints.texts)
        groups = collector.sample(step, tasks, size=1, agent=self.hints.wrap if is_told else None)
        episodes = scored(groups)
        self._told = dict(zip((t.id for t in episodes), collector.in_hindsight(episodes), strict=True))
        made = [told.task for told in self._told.values() if told is not None and skill_of(told.task)]
        return [*groups, *(collector.sample(step, made, size=1, again=TRY) if made else [])]

    def in_hindsight(self, trajectory: Trajectory) -> Trajectory | None:
        """Return one of Alice's episodes as that of the task that it solved; None where it solved none."""
        return self._told.get(trajectory.id)

    def update(self, groups: Sequence[Group]) -> None:
        """Take in Bob's tries."""
        self.failures |= failures_of(groups)

    def measure(self, groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
        """Return how many episodes reached something, how many skills (nats), and how often Bob succeeds."""
        tries = [t for t in scored(groups) if is_try(t)]
        labels = Counter(skill_of(told.task) for told in self._told.values() if told is not None)
        return {
            "exif/reached": labels.total() / max(len(self._told), 1),
            "exif/skill_entropy": -sum(
                n / labels.total() * math.log(n / labels.total()) for n in labels.values()
            ),
            "exif/tries": float(len(tries)),
            "exif/mastered": sum(t.is_success for t in tries) / max(len(tries), 1),
        }


def skill_of(task: Task) -> str:
    """Return the skill that a task made in hindsight asks for; empty for a task of the environment's own.

    Example: of ``craft/train/4?goal=stone axe`` it is "stone axe"; where several things are asked for it names all.
    """
    told = task.id.partition("?")[2]
    return told if "," in told else told.partition("=")[2]


def is_try(trajectory: Trajectory) -> bool:
    """Return whether an episode is one of Bob's tries."""
    return trajectory.group.endswith(f"+{TRY}")


def failures_of(groups: Sequence[Group]) -> dict[str, float]:
    """Return for each skill the share of Bob's tries that failed."""
    outcomes: dict[str, list[bool]] = {}
    for trajectory in scored(groups):
        if is_try(trajectory):
            outcomes.setdefault(skill_of(trajectory.task), []).append(trajectory.is_success)
    return {skill: 1 - sum(own) / len(own) for skill, own in outcomes.items()}


def drawn(failures: Mapping[str, float], count: int, rng: random.Random) -> list[str]:
    """Return `count` skills, each in proportion to its failures; none where nothing fails."""
    return rng.choices(list(failures), list(failures.values()), k=count) if any(failures.values()) else []


def explored() -> Stage:
    """Return the stage that keeps Alice's episodes."""
    return judged(
        "explored", "is a try of a task that was made of another", lambda e: not is_try(e.trajectory)
    )
