"""EXIF (arXiv 2506.04287): explores first, names in hindsight what was reached, and imitates that.

Alice, who is the policy, plays tasks of the environment. What an episode reached is made its task in hindsight
(`quintain.rollout.hindsight`), so that every task can be solved, by the episode that it came from; these episodes are
imitated. Then Bob, the policy as well, tries those tasks. How often he fails at each skill is told to Alice: in the
next round each of her prompts names one to explore, drawn in proportion to its failures. A model that is too small to
heed a line in a prompt can be told otherwise: with `asks`, a share of her episodes begin where tasks that he failed
were made, and ask for them.

With ``keeps=solved`` nothing is said in hindsight: proposal first, which the paper compares with. Only those episodes
are imitated that solved the task that they were given.

Differences to the paper: what was reached says the environment (`achieved`), where the paper asks a language model for
an instruction, and adds no reasoning to it; the feedback is the name of a skill in the prompt, or tasks that Bob
failed, where the paper has a critique in words; whether he succeeds says the environment; he tries the tasks of a round
before he has learned from it. What speaks of a skill to explore is taken out of the prompts before they are imitated.
Measured on `shop` and `craft`, the paper's WebShop and Crafter in small.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from quintain.agents.hints import Hints, strip_hints
from quintain.config.ranges import NonNegativeInt, PositiveInt, Share
from quintain.data import stages
from quintain.data.pipeline import Pipeline, Stage, check_stage
from quintain.data.seats import split_seats
from quintain.errors import ConfigError
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, CombinedState
from quintain.types import Group, Task, Trajectory, flatten_scored

PERSONA = "Explore: {}."
"""What Alice is told beside her task."""
TRY = 1
"""The occasion in a round on which Bob tries what Alice made of her episodes."""
RETRIES = 4
"""Episodes of Alice for each task that Bob failed, on average and at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of EXIF."""

    renamed: ClassVar[Mapping[str, str]] = {"tries": "max_hindsight_tasks"}
    """earlier names of options"""

    environment: str = "craft?depth=3&places=2"
    """An environment that says what an episode achieved."""
    tasks: PositiveInt = 64
    """Episodes that Alice explores in, each of another task."""
    has_feedback: bool = True
    """Whether Alice is told what Bob fails at; else she explores as her task says."""
    asks: Share = 0.0
    """Share of Alice's episodes, at most, in which feedback asks for a task that Bob failed, as it was made in
    hindsight; 0: it is the name of a skill in all of her prompts."""
    max_hindsight_tasks: NonNegativeInt | None = None
    """Tasks made in hindsight that Bob tries in a round, at most; none: all of them."""
    keeps: Literal["reached", "solved"] = "reached"
    """Which episodes are imitated: those that reached something, under that, or (proposal first) those that solved what
    they were asked for."""
    longest: PositiveInt | None = None
    """Turns of an episode that is imitated, at most: in hindsight detours count as the way; none: any number."""
    starts_over: bool = False
    """Train every round from the starting policy."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        RoundsConfig.check(self)
        if self.has_feedback and self.max_hindsight_tasks == 0:
            raise ConfigError(
                "max_hindsight_tasks: got 0 with has_feedback, which is what Bob's tries say; "
                "raise it, or give has_feedback=false"
            )
        if self.plays_apart:
            raise ConfigError(
                f"rollout: got {self.rollout} with agent {self.agent}; Alice and Bob play in the same round, so use "
                "rollout=lockstep and an agent of the run's own"
            )


def method(config: Config) -> Rounds:
    """Return EXIF as `config` describes it."""
    explorer = Explorer(
        config.tasks,
        has_feedback=config.has_feedback,
        asks=config.asks,
        tries=config.max_hindsight_tasks,
        keeps_reached=config.keeps == "reached",
        longest=config.longest,
    )
    return Rounds(
        collect=explorer.collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        starts_over=config.starts_over,
        state=CombinedState(explorer),
    )


class Explorer:
    """Alice's tasks and Bob's failures: ``Explorer(64, has_feedback=True).collect(collector, step)``."""

    def __init__(
        self,
        tasks: int,
        *,
        has_feedback: bool,
        asks: float = 0.0,
        tries: int | None = None,
        keeps_reached: bool = True,
        longest: int | None = None,
    ) -> None:
        self.tasks, self.tries, self.keeps_reached, self.longest = tasks, tries, keeps_reached, longest
        self.tells, self.asks = has_feedback and asks == 0, asks if has_feedback else 0.0
        self.failures: dict[str, float] = {}
        """share of Bob's tries of each skill that failed, in the round that tried it last"""
        self.failed: dict[str, list[Task]] = {}
        """tasks that Bob failed in the newest round, by skill"""

    def collect(self, collector: Collector, step: int) -> Collected:
        """Return Alice's episodes, Bob's tries of the tasks that these solved in hindsight, and what is imitated."""
        rng = random.Random(collector.seed("skills", step))
        tasks = self.replace_tasks(collector.tasks(step, self.tasks), rng)
        hints = Hints()
        if self.tells:
            skills = draw_skills(self.failures, len(tasks), rng)
            told = zip(tasks, skills, strict=False)
            hints.texts = {task.id: PERSONA.format(skill) for task, skill in told}
        groups = collector.sample(step, tasks, size=1, agent=hints.wrap if hints.texts else None)
        episodes = flatten_scored(groups)
        found = dict(zip((t.id for t in episodes), self._make_example(collector, episodes), strict=True))
        made = [each.task for each in found.values() if each is not None and skill_of(each.task)]
        made = made[: self.tries]
        groups += collector.sample(step, made, size=1, again=TRY) if made else []
        return Collected(
            groups=groups,
            data=[pipeline(found, hints)(split_seats(groups))],
            metrics=measure(groups, list(found.values())),
        )

    def replace_tasks(self, tasks: Sequence[Task], rng: random.Random) -> list[Task]:
        """Return `tasks` with the first ones replaced by what Bob failed: skills in proportion to their failures."""
        count = min(round(self.asks * len(tasks)), RETRIES * sum(map(len, self.failed.values())))
        skills = draw_skills({s: self.failures[s] for s in self.failed}, count, rng)
        return [*(rng.choice(self.failed[skill]) for skill in skills), *tasks[len(skills) :]]

    def _make_example(self, collector: Collector, episodes: Sequence[Trajectory]) -> list[Trajectory | None]:
        """Return each of Alice's episodes as it is imitated, or None."""
        if self.keeps_reached:
            found = collector.relabel_episodes(episodes)
        else:
            found = [t if t.is_success else None for t in episodes]
        return [t if t and len(t.turns) <= (self.longest or len(t.turns)) else None for t in found]

    def update(self, groups: Sequence[Group]) -> None:
        """Take in Bob's tries."""
        self.failures |= failures_of(groups)
        self.failed = {}
        for trajectory in flatten_scored(groups):
            if is_try(trajectory) and not trajectory.is_success:
                self.failed.setdefault(skill_of(trajectory.task), []).append(trajectory.task)


def pipeline(relabelled: Mapping[str, Trajectory | None], hints: Hints) -> Pipeline:
    """Return episodes of a round → Alice's, as those of the tasks that they solved, without what she was told."""
    return Pipeline(
        keep_explored(),
        stages.relabel_tasks(lambda trajectory: relabelled.get(trajectory.id), name="hindsight"),
        strip_hints(hints),
    )


def measure(groups: Sequence[Group], relabelled: Sequence[Trajectory | None]) -> Mapping[str, float]:
    """Return how many episodes reached something, how many skills (nats), and how often Bob succeeds."""
    tries = [t for t in flatten_scored(groups) if is_try(t)]
    labels = Counter(skill_of(each.task) for each in relabelled if each is not None)
    return {
        "exif/reached": labels.total() / max(len(relabelled), 1),
        "exif/skill_entropy": -sum(
            n / labels.total() * math.log(n / labels.total()) for n in labels.values()
        ),
        "exif/tries": float(len(tries)),
        "exif/mastered": sum(t.is_success for t in tries) / max(len(tries), 1),
    }


def skill_of(task: Task) -> str:
    """Return the skill that a task made in hindsight asks for; empty for a task of the environment's own.

    Example: of ``craft/train/4?goal=stone axe`` it is "stone axe"; where several things are asked for it names all. Of
    a task that was made again of a made one it is the last.
    """
    told = task.id.rpartition("?")[2] if "?" in task.id else ""
    return told if "," in told else told.partition("=")[2]


def is_try(trajectory: Trajectory) -> bool:
    """Return whether an episode is one of Bob's tries."""
    return trajectory.group.endswith(f"+{TRY}")


def failures_of(groups: Sequence[Group]) -> dict[str, float]:
    """Return for each skill the share of Bob's tries that failed."""
    outcomes: dict[str, list[bool]] = {}
    for trajectory in flatten_scored(groups):
        if is_try(trajectory):
            outcomes.setdefault(skill_of(trajectory.task), []).append(trajectory.is_success)
    return {skill: 1 - sum(own) / len(own) for skill, own in outcomes.items()}


def draw_skills(failures: Mapping[str, float], count: int, rng: random.Random) -> list[str]:
    """Return `count` skills, each in proportion to its failures; none where nothing fails."""
    return rng.choices(list(failures), list(failures.values()), k=count) if any(failures.values()) else []


def keep_explored() -> Stage:
    """Return the stage that keeps Alice's episodes."""
    return check_stage(
        "explored", "is a try of a task that was made of another", lambda e: not is_try(e.trajectory)
    )
