"""A frozen checkpoint that is played twice, with one thing swapped or taken away, paired by task.

Both arms have the same tasks and the same uniforms of sampling: the seed of an episode is made of the probe's seed, the
task and its place, and of nothing that differs between the arms. What is compared is what the change did.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from quintain.agents.catalog import AUTO
from quintain.agents.protocol import Agent
from quintain.curriculum.streams import TaskStream
from quintain.engines.build import build_engine
from quintain.engines.protocol import Engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.models.load import load
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Limits, Options
from quintain.rollout.views import Prefix
from quintain.types import Group, Split, Task, Trajectory, derive_seed
from quintain.warm_start.start import build_agent

Measure = Callable[[Trajectory], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A number of every task in both arms: ``Paired(method=array([1., 0.]), control=array([0., 0.]), tasks=(…))``."""

    method: NDArray[np.float64]
    control: NDArray[np.float64]
    """[tasks], means over the episodes of a task"""
    tasks: tuple[str, ...]

    @property
    def difference(self) -> float:
        """Mean of method less control."""
        return float((self.method - self.control).mean())

    @property
    def discordant(self) -> tuple[int, int]:
        """Tasks in which the method is ahead, and in which the control is: the numbers of McNemar's test."""
        return int((self.method > self.control).sum()), int((self.method < self.control).sum())

    def rows(self) -> list[Mapping[str, float]]:
        """Return a measurement for each task: ``{"method": 1.0, "control": 0.0}``."""
        both = zip(self.method.tolist(), self.control.tolist(), strict=True)
        return [{"method": a, "control": b} for a, b in both]


class Probe:
    """Plays a frozen policy: ``with opened(folder, "keydoor", seed=0) as probe: probe.play(probe.tasks(500))``."""

    def __init__(self, rollout: Rollout, seed: int) -> None:
        self.rollout, self.seed = rollout, seed

    def tasks(self, count: int, *, split: Split = "eval", first: int = 0) -> list[Task]:
        """Return `count` tasks of the environment, held-out ones unless `split` says otherwise."""
        stream = TaskStream(tasks_of(self.rollout.make_environment), split)
        return [stream.at(first + place) for place in range(count)]

    def play(
        self,
        tasks: Sequence[Task],
        *,
        size: int = 1,
        change: Callable[[Agent], Agent] | None = None,
        limits: Limits | None = None,
    ) -> list[Group]:
        """Return `size` episodes of each of `tasks`; `change` wraps the harness for these alone.

        Calls with equal tasks and size have common uniforms, whatever is changed.
        """
        agent = None if change is None else change(self.rollout.agent)
        return self.rollout.groups(
            tasks,
            size=size,
            seed=derive_seed("probe", self.seed),
            options=Options(agent=agent, limits=limits),
        )

    def moments(
        self, trajectories: Sequence[Trajectory], turn: Callable[[Trajectory], int | None]
    ) -> list[Prefix]:
        """Return the moment before turn `turn`(trajectory) of each episode; None leaves an episode out."""
        chosen = [(t, k) for t in trajectories if (k := turn(t)) is not None and k < len(t.turns)]
        walks = self.rollout.replay_episodes([t for t, _ in chosen])
        return [walk.prefix(k) for walk, (_, k) in zip(walks, chosen, strict=True)]

    def continue_from(self, moments: Sequence[Prefix], *, size: int = 1) -> list[Group]:
        """Return `size` ways on from each of `moments`, with common uniforms for equal numbers of moments."""
        return self.rollout.continuations(moments, size=size, seed=derive_seed("probe on", self.seed))


@contextmanager
def opened(
    folder: Path | str,
    environment: str | type[Environment],
    *,
    seed: int,
    agent: str = AUTO,
    temperature: float = 1.0,
    wrap: Callable[[Environment], Environment] = lambda environment: environment,
    limits: Limits | None = None,
    engine: Engine | None = None,
) -> Generator[Probe]:
    """Open a probe of the checkpoint in `folder` on `environment`; `wrap` changes the environment for this probe.

    Two probes of one seed are paired: open one with and one without `wrap`. `engine` stands in for the checkpoint's,
    as a scripted mind does.
    """
    make = find(environment)
    loaded = load(str(folder))
    harness = build_agent(loaded.tokenizer, make, temperature=temperature, agent=agent)

    def make_environment() -> Environment:
        return wrap(make())

    rollout = Rollout(
        harness,
        make_environment,
        engine or build_engine(EngineSettings(), loaded.model, loaded.tokenizer),
        limits=limits,
    )
    try:
        yield Probe(rollout, seed)
    finally:
        rollout.close()


def pair(
    method: Sequence[Group],
    control: Sequence[Group],
    measure: Measure = lambda trajectory: float(trajectory.is_success),
) -> Paired:
    """Return `measure` (success unless given) of both arms, by task and place.

    Raises:
        UsageError: the arms have not the same tasks in the same order, or a task has no scored episode.
    """
    if [g.task.id for g in method] != [g.task.id for g in control]:
        raise UsageError(
            "arms of a probe: got other tasks in one than in the other; play both on the same tasks"
        )

    def means(groups: Sequence[Group]) -> NDArray[np.float64]:
        empty = [group.task.id for group in groups if not group.scored]
        if empty:
            raise UsageError(f"arms of a probe: got no scored episode of {empty[0]}; look at what broke")
        return np.array([fmean(measure(t) for t in group.scored) for group in groups], np.float64)

    return Paired(method=means(method), control=means(control), tasks=tuple(g.task.id for g in method))
