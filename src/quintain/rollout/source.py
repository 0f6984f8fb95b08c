"""Where episodes come from: a source is asked for episodes and yields each as soon as it ends.

`Lockstep` and `Async` play them here; `Recorded` has them already. What else yields episodes fits the same protocol:
an endpoint that outside agents talk to hands out each request as an address and yields the episode when its agent is
done; a search expands a request into a tree over snapshots and yields the leaves, which share the request's group.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import ExitStack
from itertools import islice
from typing import Literal, Protocol

from quintain.errors import DataError
from quintain.rollout.failures import STALE, check_broken, check_failures
from quintain.rollout.gc_pause import gc_frozen
from quintain.rollout.play import AsyncCalls, Calls, LockstepCalls, Play, PlayContext
from quintain.rollout.request import EpisodeRequest
from quintain.rollout.watchdog import Watchdog
from quintain.types import Failure, Trajectory
from quintain.types.terminal import write_command

Kind = Literal["lockstep", "async"]


class Source(Protocol):
    """Yields episodes that it is asked for."""

    def episodes(self, requests: Iterable[EpisodeRequest]) -> Iterator[Trajectory]:
        """Yield the episode of each of `requests` as soon as it ends, in any order.

        Requests are drawn when there is room for them, so there may be more of them than anybody waits for. What can
        not be had is an episode whose outcome is a `Failure`. The caller may stop at any time, and may do something
        else between two episodes, such as a step of training; the others go on where they can.
        """
        ...


class MakeSource(Protocol):
    """What makes sources that share something which outlasts a call of a rollout, such as a server."""

    def __call__(self, stage: PlayContext) -> Source:
        """Return the source for one call of a rollout."""
        ...

    def close(self) -> None:
        """Free what they share; may be repeated."""
        ...


class Lockstep:
    """Plays in rounds: all engines sample one more token, then all environments that have an action step.

    Everybody waits for the slowest environment of a round, so the order in which anything happens depends on the
    requests alone: what is collected is the same bit for bit, in a resumed run, too. The right source where
    environments are quick.
    """

    def __init__(self, stage: PlayContext) -> None:
        self.stage = stage

    def episodes(self, requests: Iterable[EpisodeRequest]) -> Generator[Trajectory]:
        """See `Source.episodes`."""
        yield from _play_requests(self.stage, LockstepCalls(self.stage.pool.stepper), requests)


class Async:
    """Plays without a barrier: engines go on sampling while environments work, and a slow one holds up nobody else.

    Every call into an environment has a thread of its own and the same deadline, failures and retries as in lockstep.
    Seeds belong to the episodes, so the tokens of each are the same as in lockstep if the engine samples a stream
    independently of those beside it; only the order in which episodes end differs from run to run, and, where weights
    change under way, which tokens are of which version (`Completion.version_spans`).
    """

    def __init__(self, stage: PlayContext) -> None:
        self.stage = stage

    def episodes(self, requests: Iterable[EpisodeRequest]) -> Generator[Trajectory]:
        """See `Source.episodes`."""
        yield from _play_requests(self.stage, AsyncCalls(self.stage.pool.stepper), requests)


SOURCES: dict[Kind, Callable[[PlayContext], Source]] = {"lockstep": Lockstep, "async": Async}


class Recorded:
    """Episodes that were played before: those of a journal, of a data set, or of a collection that was broken off."""

    def __init__(self, trajectories: Iterable[Trajectory]) -> None:
        self._known = {(each.group, each.index): each for each in trajectories}

    def find(self, request: EpisodeRequest) -> Trajectory | None:
        """Return the episode that `request` asks for, None where it is not recorded.

        Raises:
            DataError: the recorded episode of this name had another task or seed.
        """
        found = self._known.get((request.group, request.index))
        if found is None or (found.seed, found.task.id) == (request.seed, request.task.id):
            return found
        raise DataError(
            f"episode {request.index} of {request.group}: got a record with seed {found.seed} of {found.task.id}, not "
            f"{request.seed} of {request.task.id}; give the records of this run and step, or none"
        )

    def episodes(self, requests: Iterable[EpisodeRequest]) -> Generator[Trajectory]:
        """See `Source.episodes`.

        Raises:
            DataError: one is not recorded; see `find`, too.
        """
        for request in requests:
            found = self.find(request)
            if found is None:
                raise DataError(
                    f"episode {request.index} of {request.group}: got no record of it; play it, or ask for others"
                )
            yield found


def _play_requests(
    stage: PlayContext, calls: Calls, requests: Iterable[EpisodeRequest]
) -> Generator[Trajectory]:
    """Yield the episodes that `requests` ask for, played with `calls`.

    Raises:
        FailureRateError: more than the allowed share of episodes failed.
    """
    pool, limits = stage.pool, stage.limits
    queue, total = iter(requests), len(requests) if isinstance(requests, Sized) else None
    play = Play(stage, calls)
    failures: list[Failure] = []
    num_drawn = num_finished = 0
    with ExitStack() as stack:
        stack.enter_context(gc_frozen())
        stack.enter_context(Watchdog(play.live, seconds=limits.silence, patience=stage.patience))
        try:
            while True:
                new = list(islice(queue, max(0, stage.most_live - play.num_live)))
                num_drawn += len(new)
                if not new and not play.num_live and not calls.num_open:
                    return
                play.round(new)
                for trajectory in play.take_finished():
                    num_finished += 1
                    failure = trajectory.outcome
                    failures += [failure] if isinstance(failure, Failure) and failure.kind != STALE else []
                    play.suspend()
                    yield trajectory
                    play.resume()
                total_now = num_drawn if total is None else total
                check_failures(
                    failures, finished=num_finished, total=total_now, most=limits.max_failure_share
                )
                check_broken(
                    f"environment {pool.spec}",
                    pool.broken,
                    pool.num_attempts,
                    most=limits.max_broken_share,
                    test=write_command("quintain", "check", pool.spec, "--load", 16),
                )
        except BaseException:
            play.abandon()
            raise
