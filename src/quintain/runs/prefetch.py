"""Episodes of the steps to come, played while those of a step end, so that no step waits for its slowest tool alone.

They go on while the weights are updated: each token says by which version it was sampled, and an episode that is too
old when its step learns from it is a failure of kind ``stale``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from quintain.errors import InvariantError
from quintain.rollout.collect import Rollout
from quintain.rollout.request import EpisodeRequest
from quintain.rollout.staleness import judge_age, oldest_versions, staleness
from quintain.types import Failure, Stop, Trajectory

STRAGGLER = "straggler"
"""Kind of the failure of an episode that its step did not wait for."""
Key = tuple[int, str, int]
"""(step, group, index)"""
Requests = Callable[[int], Sequence[EpisodeRequest]]
"""step -> the episodes that it asks for"""


class RolloutPrefetcher:
    """Plays the episodes of a step, and then those of as many steps after it as may become old.

    Args:
        rollout: plays them; nobody else does with it, and its engines are desks of their own (`engines.desk`).
        max_staleness: versions that an episode's oldest token may be behind the weights that learn from it.
        last_step: the last step of the run.
        max_stragglers: share of a step's episodes that it does not wait for.
    """

    def __init__(
        self, rollout: Rollout, *, max_staleness: int, last_step: int, max_stragglers: float = 0.0
    ) -> None:
        self.rollout = rollout
        self.max_staleness, self.max_stragglers = max_staleness, max_stragglers
        self.last_step = last_step
        self._queue: deque[EpisodeRequest] = deque()
        self._begun: set[int] = set()
        self._asked: dict[Key, int] = {}
        """seeds of the episodes that were asked for and not collected"""
        self._playing: set[Key] = set()
        self._done: dict[Key, Trajectory] = {}
        self._cut: set[Key] = set()
        """episodes that are still played, and that nobody waits for any more"""
        self._episodes: Generator[Trajectory] | None = None
        self._versions: dict[str, int] = {}
        """versions of the policies when the step before was collected"""
        self._pace: int | None = None

    def collect(
        self,
        step: int,
        requests: Requests,
        *,
        known: Callable[[int], Sequence[Trajectory]],
        on_episode: Callable[[int, Trajectory], Trajectory],
    ) -> dict[tuple[str, int], Trajectory]:
        """Return the episodes that `step` asks for by group and index; those of later steps are begun.

        `on_episode` is called with step and episode as soon as one ends, and returns what it is from then on. What is
        `known` of a step, from a run that was broken off, is not played again.

        Raises:
            InvariantError: other episodes are asked for than those that were begun for the step.
        """
        now = {name: engine.policy_version for name, engine in self.rollout.engines.items()}
        self._measure_pace(now)
        wanted = requests(step)
        for each in range(step, min(step + self._num_ahead, self.last_step) + 1):
            if each not in self._begun:
                self._begun.add(each)
                self._know(each, known(each))
            self._ask(each, wanted if each == step else requests(each))
        keys = [(step, request.group, request.index) for request in wanted]
        missing = {key for key in keys if key not in self._done}
        while len(missing) > self.max_stragglers * len(wanted):
            key, trajectory = self._next()
            self._done[key] = on_episode(key[0], trajectory)
            missing.discard(key)
        for request in wanted:
            if (key := (step, request.group, request.index)) in missing:
                self._cut.add(key)
                self._done[key] = on_episode(step, cut(request))
        found: dict[tuple[str, int], Trajectory] = {}
        for key in keys:
            trajectory = self._done.pop(key)
            age = staleness(oldest_versions(trajectory), now)
            found[key[1:]] = judge_age(trajectory, age, self.max_staleness)
            self._asked.pop(key, None)
        return found

    def close(self) -> None:
        """Give up what is still played."""
        if self._episodes is not None:
            self._episodes.close()
        self.rollout.close()

    def _know(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        """Take in episodes of `step` that were played before the run was begun again."""
        for trajectory in trajectories:
            key = step, trajectory.group, trajectory.index
            self._done[key], self._asked[key] = trajectory, trajectory.seed

    @property
    def _num_ahead(self) -> int:
        """Steps after the present one whose episodes may be begun; 0 until it is known how many versions one takes."""
        return 0 if self._pace is None else self.max_staleness // self._pace

    def _measure_pace(self, now: dict[str, int]) -> None:
        """Note how many versions the policies have moved on since the step before."""
        if self._versions:
            moved = max(now[name] - version for name, version in self._versions.items())
            self._pace = max(moved, 1)
        self._versions = now

    def _ask(self, step: int, requests: Sequence[EpisodeRequest]) -> None:
        """Ask for those of `requests` that were not asked for."""
        for request in requests:
            key = step, request.group, request.index
            seed = self._asked.setdefault(key, request.seed)
            if seed != request.seed:
                raise InvariantError(
                    f"episode {request.index} of {request.group} in step {step}: got seed {request.seed}, and it was "
                    f"begun with {seed}; a collection that is played ahead must ask for the same when its step comes"
                )
            if key not in self._done and key not in self._playing:
                self._playing.add(key)
                self._queue.append(replace(request, group=f"{step}@{request.group}"))

    def _next(self) -> tuple[Key, Trajectory]:
        """Return the next episode that ends, and what it was asked for as."""
        if self._episodes is None:
            self._episodes = self.rollout.play(_Drawn(self._queue))
        trajectory = next(self._episodes, None)
        if trajectory is None:  # all had ended, so the source did, too
            self._episodes = None
            return self._next()
        step, _, group = trajectory.group.partition("@")
        key = int(step), group, trajectory.index
        self._playing.discard(key)
        if key in self._cut:
            self._cut.discard(key)
            return self._next()
        return key, replace(trajectory, group=group)


def cut(request: EpisodeRequest) -> Trajectory:
    """Return the episode that `request` asked for as one that was not waited for."""
    message = "the others of its step had ended; lower max_stragglers to wait for more"
    failure = Failure(owner="environment", kind=STRAGGLER, message=message)
    return Trajectory(
        task=request.task, turns=(), outcome=failure, stop=Stop.FAILURE,
        seed=request.seed, group=request.group, index=request.index,
    )  # fmt: skip


class _Drawn:
    """The requests of a queue, as an iterator that goes on after its end when there are more."""

    def __init__(self, queue: deque[EpisodeRequest]) -> None:
        self._queue = queue

    def __iter__(self) -> _Drawn:
        return self

    def __next__(self) -> EpisodeRequest:
        if not self._queue:
            raise StopIteration
        return self._queue.popleft()
