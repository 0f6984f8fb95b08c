"""A check of graders before training: what each task pays when the same episode is graded several times.

Each task is played several times as its expert plays it (at random, where there is none) and several times by doing
nothing. A grader that tells the two apart can teach; rewards that vary for one and the same episode are its noise,
and a task that always pays the same teaches nothing. A call that failed is counted and is no score.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean, pvariance

from quintain.environments.baselines import Policy, expert, noop, play, random_policy
from quintain.environments.protocol import Environment, Expert, Factory
from quintain.environments.tools import OwnedFault
from quintain.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Grades:
    """The rewards of one policy on one task: ``Grades(scores=(1.0, 1.0), failures=("grader_timeout",))``."""

    scores: tuple[float, ...]
    failures: tuple[str, ...] = ()
    """Kinds of the calls that gave no score."""

    @property
    def mean(self) -> float:
        """Mean reward; 0 where every call failed."""
        return fmean(self.scores) if self.scores else 0.0

    @property
    def variance(self) -> float:
        """Variance of the rewards, the grader's noise where the episodes are the same."""
        return pvariance(self.scores) if self.scores else 0.0

    def is_always(self, value: float) -> bool:
        """Whether there are scores, all of them `value`."""
        return bool(self.scores) and set(self.scores) == {value}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGrades:
    """What a task pays: ``TaskGrades(task=task, policy="expert", played=Grades(...), nothing=Grades(...))``."""

    task: Task
    policy: str
    """Who played: expert or random."""
    played: Grades
    nothing: Grades

    @property
    def verdict(self) -> str:
        """What is wrong with the task; an empty text when it can teach something."""
        kinds = Counter((*self.played.failures, *self.nothing.failures))
        if kinds:
            return "failed: " + ", ".join(f"{kind} {count}×" for kind, count in sorted(kinds.items()))
        if self.played.is_always(1.0) and self.nothing.is_always(1.0):
            return "always 1, also for doing nothing"
        if self.played.is_always(0.0) and self.nothing.is_always(0.0):
            return f"always 0, also for the {self.policy}"
        if self.policy == "expert" and self.played.mean <= self.nothing.mean:
            return "the expert is paid no more than doing nothing"
        return ""

    @property
    def detail(self) -> str:
        """The rewards in words."""
        told = [
            f"{name} {grades.mean:.3g} (variance {grades.variance:.2g}, n={len(grades.scores)})"
            for name, grades in ((self.policy, self.played), ("nothing", self.nothing))
        ]
        return "; ".join([*told, *filter(None, [self.verdict])])


def grade_tasks(make: Factory, *, tasks: int, calls: int) -> list[TaskGrades]:
    """Play each of the first `tasks` training tasks `calls` times with each policy, and return what it paid."""
    with closing(make()) as environment:
        several = [environment.task("train", index) for index in range(tasks)]
        has_expert = isinstance(environment, Expert)
        policy = "expert" if has_expert else "random"
        return [
            TaskGrades(
                task=task,
                policy=policy,
                played=_grades(
                    environment, task, [expert if has_expert else random_policy(k) for k in range(calls)]
                ),
                nothing=_grades(environment, task, [noop] * calls),
            )
            for task in several
        ]


def _grades(environment: Environment, task: Task, policies: Sequence[Policy]) -> Grades:
    """Return what an episode of each of `policies` paid."""
    scores: list[float] = []
    failures: list[str] = []
    for policy in policies:
        _one(lambda policy=policy: play(environment, task, policy).total, scores, failures)
    return Grades(scores=tuple(scores), failures=tuple(failures))


def _one(episode: Callable[[], float], scores: list[float], failures: list[str]) -> None:
    """Note the reward of an episode, or the kind of its failure."""
    try:
        scores.append(episode())
    except OwnedFault as fault:
        failures.append(fault.kind)
