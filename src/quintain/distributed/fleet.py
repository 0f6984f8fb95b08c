"""The workers of a run: episodes are handed to them, those of a lost one are played again, and their number is fitted.

An episode is asked for by its request, whose seed says what is sampled: played again it is the same episode. What a
worker that was given up may still send is not read, so that each is there once. Everything happens in the thread that
collects episodes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from quintain.distributed.connection import Connection
from quintain.distributed.engine_host import LOST
from quintain.distributed.placement import Workers, count_workers
from quintain.distributed.worker import Played, Scene
from quintain.errors import EngineFault
from quintain.rollout.failures import INFRASTRUCTURE, STALE, check_broken, check_failures
from quintain.rollout.play import PlayContext
from quintain.rollout.request import EpisodeRequest, Limits
from quintain.rollout.staleness import judge_age, oldest_versions
from quintain.types import Failure, Stop, Trajectory

LOOK = 1.0
"""Seconds between two looks at the workers while nothing comes."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Task:
    """An episode that is waited for."""

    scene: Scene
    request: EpisodeRequest
    limits: Limits
    inbox: deque[Played]
    num_lost: int = 0
    is_given_up: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class _Worker:
    """A worker, and when it began or was last busy."""

    name: str
    handle: Any
    opening: Any
    """reference that is there when it is ready; None from then on"""
    since: float
    tasks: set[_Task] = field(default_factory=set[_Task])


class Fleet:
    """Workers that `begin` makes, each with what opens it: ``begin("w3")`` returns handle and reference.

    Args:
        mend: brings lost engines back.
        settings: how many workers, and of how many episodes.
        start_timeout: seconds within which one of them must be ready.
    """

    def __init__(
        self,
        connection: Connection,
        begin: Callable[[str], tuple[Any, Any]],
        mend: Callable[[], None],
        settings: Workers,
        *,
        start_timeout: float,
    ) -> None:
        self._connection, self._begin, self._mend = connection, begin, mend
        self._settings, self._start_timeout = settings, start_timeout
        self._ray = connection.ray
        self._numbers = count()
        self._workers: dict[str, _Worker] = {}
        self._queue: deque[_Task] = deque()
        self._running: dict[Any, tuple[_Task, _Worker]] = {}
        self.num_lost = 0
        """episodes that were begun again because their worker or engine was lost"""
        self.num_started = 0
        """workers that were begun"""

    def submit(self, task: _Task) -> None:
        """Take on an episode."""
        self._queue.append(task)

    def give_up(self, tasks: Iterable[_Task]) -> None:
        """Drop what nobody waits for any more; what is being played is let go on, and not read."""
        for task in tasks:
            task.is_given_up = True
        self._queue = deque(task for task in self._queue if not task.is_given_up)

    def work(self) -> None:
        """Take in what has come, wait a moment where nothing has, and hand out what waits.

        Raises:
            EngineFault: no worker starts in time, or an engine does not come back.
            QuintainError: what a worker raised.
        """
        self._fit()
        self._hand_out()
        waited = [
            *self._running,
            *(each.opening for each in self._workers.values() if each.opening is not None),
        ]
        if waited:
            ready, _ = self._ray.wait(waited, num_returns=1, timeout=LOOK)
            if ready and len(waited) > 1:
                ready, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
            for reference in ready:
                self._take(reference)
        self._hand_out()

    def close(self) -> None:
        """End all workers."""
        for worker in [*self._workers.values()]:
            self._end(worker)
        self._queue.clear()
        self._running.clear()

    def _take(self, reference: Any) -> None:
        """Take in what an episode or a new worker has come to."""
        if reference not in self._running:
            for worker in [*self._workers.values()]:
                if worker.opening is not None and worker.opening == reference:
                    self._open(worker)
            return
        task, worker = self._running.pop(reference)
        worker.tasks.discard(task)
        worker.since = time.monotonic()
        if task.is_given_up:
            return
        try:
            played: Played = self._connection.get(reference, self._start_timeout, f"the worker {worker.name}")
        except EngineFault as error:
            if not isinstance(error.__cause__, self._ray.exceptions.RayError) or isinstance(
                error.__cause__, self._ray.exceptions.RayTaskError
            ):
                raise
            self._end(worker)
            self._again(task, f"its worker was lost ({type(error.__cause__).__name__})")
            return
        outcome = played.trajectory.outcome
        if isinstance(outcome, Failure) and (outcome.owner, outcome.kind) == ("engine", LOST):
            self._mend()
            self._again(task, outcome.message)
            return
        task.inbox.append(played)

    def _again(self, task: _Task, why: str) -> None:
        """Play an episode again, from its first turn and with its seed; too often is a failure of its environment."""
        task.num_lost += 1
        self.num_lost += 1
        if task.num_lost <= self._settings.losses:
            self._queue.appendleft(task)
            return
        message = f"it was played {task.num_lost} times, and {why}"
        request, failure = task.request, Failure(owner="environment", kind="crash", message=message)
        trajectory = Trajectory(
            task=request.task, turns=(), outcome=failure, stop=Stop.FAILURE,
            seed=request.seed, group=request.group, index=request.index,
        )  # fmt: skip
        task.inbox.append(Played(trajectory=trajectory, retries=(), broken=(failure,), num_attempts=1))

    def _fit(self) -> None:
        """Begin workers that are wanted, and end those that nobody needs."""
        now = time.monotonic()
        wanted = count_workers(len(self._queue) + len(self._running), self._settings)
        while len(self._workers) < wanted:
            name = f"w{next(self._numbers)}"
            handle, opening = self._begin(name)
            self._workers[name] = _Worker(name=name, handle=handle, opening=opening, since=now)
            self.num_started += 1
        for worker in [*self._workers.values()]:
            is_idle = worker.opening is None and not worker.tasks and now - worker.since > self._settings.idle
            if is_idle and len(self._workers) > wanted:
                self._end(worker)
        starting = [each for each in self._workers.values() if each.opening is not None]
        if (
            len(starting) == len(self._workers)
            and now - min(each.since for each in starting) > self._start_timeout
        ):
            raise EngineFault(
                f"workers of the cluster: got none ready within {self._start_timeout:g} s; see ray status for what "
                "their placement waits for"
            )

    def _open(self, worker: _Worker) -> None:
        """Take in that a worker is ready, or was lost before it was."""
        reference, worker.opening = worker.opening, None
        worker.since = time.monotonic()
        try:
            self._connection.get(reference, self._start_timeout, f"the worker {worker.name}")
        except EngineFault as error:
            if not isinstance(error.__cause__, self._ray.exceptions.RayActorError):
                raise
            self._end(worker)

    def _hand_out(self) -> None:
        """Give what waits to the workers with the most room."""
        ready = [each for each in self._workers.values() if each.opening is None]
        while self._queue and ready:
            worker = min(ready, key=lambda each: len(each.tasks))
            task = self._queue[0]
            # What weights may move on under is handed out ahead, for the time in which nobody is here.
            room = self._settings.episodes * (2 if task.scene.max_staleness else 1)
            if len(worker.tasks) >= room:
                return
            self._queue.popleft()
            worker.tasks.add(task)
            reference = worker.handle.play.remote(task.scene, task.request, task.limits)
            self._running[reference] = task, worker

    def _end(self, worker: _Worker) -> None:
        """End a worker; what it was playing is begun again elsewhere when that is noticed."""
        self._workers.pop(worker.name, None)
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker.handle)


class FleetSource:
    """Episodes that the fleet plays; see `quintain.rollout.source.Source`."""

    def __init__(self, fleet: Fleet, scene: Scene, stage: PlayContext) -> None:
        self._fleet, self._scene, self._stage = fleet, scene, stage

    def episodes(self, requests: Iterable[EpisodeRequest]) -> Generator[Trajectory]:
        """See `Source.episodes`.

        Raises:
            FailureRateError: more than the allowed share of episodes failed.
            EngineFault: workers or engines do not come back.
        """
        stage, limits = self._stage, self._stage.limits
        queue, total = iter(requests), len(requests) if isinstance(requests, Sized) else None
        inbox: deque[Played] = deque()
        tasks: dict[tuple[str, int], _Task] = {}
        failures: list[Failure] = []
        num_drawn = num_finished = 0
        try:
            while True:
                for request in islice(queue, max(0, stage.most_live - len(tasks))):
                    num_drawn += 1
                    task = _Task(scene=self._scene, request=request, limits=limits, inbox=inbox)
                    tasks[request.group, request.index] = task
                    self._fleet.submit(task)
                if not tasks:
                    return
                if not inbox:
                    self._fleet.work()
                while inbox:
                    trajectory = self._count(inbox.popleft())
                    del tasks[trajectory.group, trajectory.index]
                    num_finished += 1
                    outcome = trajectory.outcome
                    failures += [outcome] if isinstance(outcome, Failure) and outcome.kind != STALE else []
                    yield trajectory
                of = num_drawn if total is None else total
                check_failures(failures, finished=num_finished, total=of, most=limits.max_failure_share)
                name, pool = f"environment {self._scene.environment}", stage.pool
                check_broken(name, pool.broken, pool.num_attempts, most=limits.max_broken_share)
        finally:
            self._fleet.give_up(tasks.values())

    def _count(self, played: Played) -> Trajectory:
        """Take over what broke, and return the episode; as a failure where it is too old."""
        stage, trajectory = self._stage, played.trajectory
        stage.retries.extend(played.retries)
        stage.pool.num_attempts += played.num_attempts
        stage.pool.broken += [each for each in played.broken if each.owner in INFRASTRUCTURE]
        age = stage.sampler.staleness(oldest_versions(trajectory))
        return judge_age(trajectory, age, stage.max_staleness)


class FleetHome:
    """Makes the sources of a rollout whose episodes are played in `scene`."""

    def __init__(self, fleet: Fleet, scene: Scene) -> None:
        self._fleet, self._scene = fleet, scene

    def __call__(self, stage: PlayContext) -> FleetSource:
        """See `quintain.rollout.source.MakeSource`."""
        return FleetSource(self._fleet, self._scene, stage)

    def close(self) -> None:
        """Leave the workers, which other rollouts share."""
