"""Runs environment code off the main thread, in batches, under a deadline per call.

One hop to a worker thread carries a whole batch, so that a call costs microseconds. A call that outlives its
deadline becomes a `Failure` with its owner; its thread cannot be killed and is abandoned. What is left of its
batch is then run at once, a thread for each call: however many hang, they are waited for together. This is the
rollout's failure boundary: whatever environment code raises ends here as data.
"""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

from quintain.environments.boundary import describe_error, place
from quintain.environments.process import ProcessWatch
from quintain.environments.tools import OwnedFault
from quintain.errors import EnvironmentFault, SandboxError
from quintain.safety import box
from quintain.types import Failure

T = TypeVar("T")
THREAD = "quintain-environment"
"""Name of the threads that run environment code."""
LASTING = (THREAD, box.THREAD)
"""How the names of threads of ours begin that outlive an environment on purpose."""
OURS = (*LASTING, "quintain")
"""How the names of all threads of ours begin, those included that others than environments start meanwhile."""


@dataclass(slots=True)
class _Batch(Generic[T]):
    """Calls of one hop and what came of them so far."""

    calls: Sequence[Callable[[], T]]
    results: list[T | Failure] = field(default_factory=list["T | Failure"])
    started: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_abandoned: bool = False
    bell: "SimpleQueue[int] | None" = None
    """where the number of the batch is put when it is done, if nobody waits for `done`"""
    number: int = 0


class _Worker:
    """A thread that runs the batches it is handed, one after another, until it is handed None."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[_Batch[Any] | None] = SimpleQueue()
        self.thread = threading.Thread(target=_serve, args=(self.inbox,), name=THREAD, daemon=True)
        self.thread.start()


def _serve(inbox: "SimpleQueue[_Batch[Any] | None]") -> None:
    """Run the batches that come until one is abandoned, or None comes."""
    while (batch := inbox.get()) is not None:
        _work(batch)
        if batch.is_abandoned:
            return
        del batch


def _dismiss(idle: list[_Worker]) -> None:
    """Let the threads of `idle` end."""
    while idle:
        idle.pop().inbox.put(None)


class Stepper:
    """A pool of `num_workers` threads that run batches of calls.

    Args:
        timeout: seconds that one call may take.
        num_workers: threads that share a batch; more than one pays for environments that wait for something.
    """

    def __init__(self, *, timeout: float, num_workers: int = 1) -> None:
        self.timeout = timeout
        self.num_workers = num_workers
        self.busy_seconds = 0.0
        """for which batches were under way, so far; not those of `submit`, which run beside others"""
        self.num_abandoned = 0
        """calls that did not return in time, so far"""
        self.abandoned: list[threading.Thread] = []
        """their threads"""
        self.started: WeakSet[threading.Thread] = WeakSet()
        """threads that appeared while environment code ran"""
        self._idle: list[_Worker] = []
        self._bell: SimpleQueue[int] = SimpleQueue()
        self._apart: dict[int, tuple[_Batch[Any], _Worker]] = {}
        self._num_submitted = 0
        self._before: frozenset[threading.Thread] = frozenset()
        weakref.finalize(self, _dismiss, self._idle)

    def close(self) -> None:
        """Let the threads end that wait for work; the next batch starts new ones."""
        _dismiss(self._idle)

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T | Failure]:
        """Return the result of each of `calls`, in order; a `Failure` where one raised or ran out of time."""
        if not calls:
            return []
        begun, before = time.monotonic(), frozenset(threading.enumerate())
        width = min(self.num_workers, len(calls))
        started = [self._start(calls[worker::width]) for worker in range(width)]
        batches = [self._wait(*one) for one in started]
        self.started |= {
            thread
            for thread in threading.enumerate()
            if thread not in before and not thread.name.startswith(LASTING)
        }
        results: list[T | Failure | None] = [None] * len(calls)
        for worker, batch in enumerate(batches):
            results[worker::width] = batch.results
        self.busy_seconds += time.monotonic() - begun
        return cast("list[T | Failure]", results)

    def submit(self, call: Callable[[], object]) -> int:
        """Begin `call` in a thread of its own and return its number, by which `take_returned` names it."""
        if not self._apart:
            self._before = frozenset(threading.enumerate())
        self._num_submitted += 1
        batch, worker = self._start([call], bell=self._bell, number=self._num_submitted)
        self._apart[batch.number] = batch, worker
        return batch.number

    def take_returned(self, *, must_wait: bool, seconds: float | None = None) -> list[tuple[int, Any]]:
        """Return the submitted calls that are done, each with its result or its `Failure`, as `run` gives them.

        With `must_wait` it waits for one at least, if there are any, for at most `seconds`; every call has a result
        when its own time is over.
        """
        found: list[tuple[int, Any]] = []
        until = None if seconds is None else time.monotonic() + seconds
        while self._apart:
            found += self._late()
            is_patient = must_wait and not found
            try:
                number = self._bell.get(timeout=self._time_left(until) if is_patient else 0.0)
            except Empty:
                if is_patient and (until is None or time.monotonic() < until):
                    continue
                break
            if number in self._apart:
                batch, worker = self._apart.pop(number)
                self._idle.append(worker)
                found.append((number, batch.results[0]))
        if found:
            self.started |= {
                thread
                for thread in threading.enumerate()
                if thread not in self._before and not thread.name.startswith(OURS)
            }
        return found

    def give_up(self) -> None:
        """Abandon the submitted calls that have not returned."""
        for batch, worker in self._apart.values():
            if not self._abandon(batch, worker):
                self._idle.append(worker)
        self._apart.clear()

    def _time_left(self, until: float | None) -> float:
        """Return the seconds until the first submitted call is late, or until the time `until`."""
        first, _ = next(iter(self._apart.values()))
        late = first.started + self.timeout
        return max(0.001, (late if until is None else min(late, until)) - time.monotonic())

    def _late(self) -> list[tuple[int, Failure]]:
        """Abandon the submitted calls whose time is over and return their failures."""
        now = time.monotonic()
        over: list[int] = []
        for number, (batch, _) in self._apart.items():
            if now - batch.started < self.timeout:
                break
            over.append(number)
        late = [number for number in over if self._abandon(*self._apart[number])]
        for number in late:
            del self._apart[number]
        return [(number, self._failure()) for number in late]

    def _abandon(self, batch: _Batch[Any], worker: _Worker) -> bool:
        """Give up `batch` and its thread; returns False where it has just been done."""
        with batch.lock:
            if batch.done.is_set():
                return False
            batch.is_abandoned = True
        self.num_abandoned += 1
        self.abandoned.append(worker.thread)
        return True

    def _failure(self) -> Failure:
        """Return the failure of a call that took too long."""
        return Failure(
            owner="environment", kind="timeout", message=f"a call took longer than {self.timeout:g} s"
        )

    def _start(
        self,
        calls: Sequence[Callable[[], T]],
        *,
        bell: "SimpleQueue[int] | None" = None,
        number: int = 0,
    ) -> tuple[_Batch[T], _Worker]:
        """Hand `calls` to a thread."""
        worker = self._idle.pop() if self._idle else _Worker()
        batch = _Batch[T](calls, started=time.monotonic(), bell=bell, number=number)
        worker.inbox.put(batch)
        return batch, worker

    def _wait(self, batch: _Batch[T], worker: _Worker) -> _Batch[T]:
        """Return `batch` when every call in it has a result."""
        while not batch.done.wait(max(0.001, batch.started + self.timeout - time.monotonic())):
            with batch.lock:
                if batch.done.is_set() or time.monotonic() - batch.started < self.timeout:
                    continue
                batch.is_abandoned = True
            self.num_abandoned += 1
            self.abandoned.append(worker.thread)
            others = self._at_once(batch.calls[len(batch.results) + 1 :])
            return _Batch[T](batch.calls, results=[*batch.results, self._failure(), *others])
        self._idle.append(worker)
        return batch

    def _at_once(self, calls: Sequence[Callable[[], T]]) -> list[T | Failure]:
        """Return the results of `calls`, each in a thread of its own."""
        started = [self._start([call]) for call in calls]
        return [result for one in started for result in self._wait(*one).results]


def _work(batch: _Batch[T]) -> None:
    """Run the calls of `batch` until done or abandoned."""
    for call in batch.calls:
        result = guard_call(call)
        with batch.lock:
            if batch.is_abandoned:
                return
            batch.results.append(result)
            batch.started = time.monotonic()
            if len(batch.results) == len(batch.calls):
                batch.done.set()
                if batch.bell is not None:
                    batch.bell.put(batch.number)


def guard_call(call: Callable[[], T]) -> T | Failure:
    """Return the result of `call`, or the `Failure` that what it raised stands for."""
    try:
        with ProcessWatch():
            return call()
    except OwnedFault as fault:
        return Failure(owner=fault.owner, kind=fault.kind, message=str(fault))
    except SandboxError as fault:
        return Failure(owner="tool", kind="sandbox", message=str(fault))
    except EnvironmentFault as fault:
        return Failure(owner="environment", kind="contract", message=str(fault))
    except SystemExit as error:
        code = error.code if error.code is None or type(error.code) is int else describe_error(error)
        return Failure(owner="environment", kind="SystemExit", message=f"called sys.exit({code!r})")
    except BaseException as error:  # the rollout boundary: environment code may raise anything
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # a signal, which no other thread gets
        said = f"{describe_error(error)}{place(error)}"
        return Failure(owner="environment", kind=type(error).__name__, message=said)
