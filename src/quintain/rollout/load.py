"""An environment under load: many instances at once, random play, and what broke, how long it took, what it weighs.

The instances take a step together, each in a thread of its own, so that a step is timed while all others step, too. A
call that raises or does not return in time is a failure with an owner, as in a rollout.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from quintain.environments.baselines import find_range_text, random_action
from quintain.environments.protocol import Environment, Factory, Killable, Pooled, advance, begin
from quintain.errors import EnvironmentFault, QuintainError
from quintain.processes.tree import below, memory
from quintain.processes.usage import resources
from quintain.rollout.pool import try_make
from quintain.rollout.stepper import Stepper
from quintain.types import Failure, Task, as_text, derive_seed

T = TypeVar("T")
MAX_FAILURES = 0.01
"""Share of episodes that may break."""
PATIENCE = 2.0
"""Seconds that processes have to end after `close`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What came of it: ``Load(instances=64, episodes=256, failures={"environment/timeout": 1}, ...)``."""

    instances: int
    episodes: int
    """Episodes that were begun."""
    failures: Mapping[str, int]
    """Owner and kind → episodes that broke."""
    first: str
    """What the first failure says."""
    starts: Sequence[float]
    """Seconds that each start of an episode took."""
    steps: Sequence[float]
    """Seconds that each step took."""
    seconds: float
    memory: int
    """Bytes that an instance holds, those of its processes included."""
    left: Mapping[str, int]
    """Threads, processes and open files that are more than before, after all were closed."""

    @property
    def failure_share(self) -> float:
        """Share of the episodes that broke."""
        return sum(self.failures.values()) / max(self.episodes, 1)


@dataclass(slots=True, eq=False)
class _Seat:
    """An instance and the episode it is in."""

    environment: Environment | None = None
    task: Task | None = None
    told: str = ""
    num_turns: int = 0
    rng: random.Random = field(default_factory=random.Random)


class _Test:
    """The instances of a load test and what was seen so far."""

    def __init__(self, make: Factory, instances: int, timeout: float) -> None:
        self.make = make
        self.stepper = Stepper(timeout=timeout, num_workers=instances)
        self.seats = [_Seat() for _ in range(instances)]
        self.failures: Counter[str] = Counter()
        self.first = ""
        self.episodes = 0
        self.pooled: list[Pooled] = []
        """One of the instances that share something."""
        self.starts: list[float] = []
        self.steps: list[float] = []

    def fill(self) -> None:
        """Build an instance where there is none."""
        empty = [seat for seat in self.seats if seat.environment is None]
        for seat, made in zip(empty, self._try_call(empty, lambda _: try_make(self.make)), strict=True):
            if isinstance(made, EnvironmentFault):
                self._drop_seat(seat, Failure(owner="environment", kind="contract", message=str(made)))
            elif isinstance(made, QuintainError):
                raise made
            else:
                seat.environment = made
                if isinstance(made, Pooled):
                    self.pooled = [made]
            self.episodes += seat.environment is None

    def start(self, tasks: Sequence[Task]) -> None:
        """Start an episode in each instance that has none."""
        idle = [seat for seat in self.seats if seat.environment is not None and seat.task is None][
            : len(tasks)
        ]
        for seat, task in zip(idle, tasks, strict=False):
            seat.task, seat.num_turns = task, 0
            seat.rng = random.Random(derive_seed("load", task.seed))
        self.episodes += len(idle)
        for seat, found in zip(idle, self._try_call(idle, _begin_seat), strict=True):
            if found is not None:
                seconds, seat.told = found
                self.starts.append(seconds)

    def step(self) -> None:
        """Let each instance that is in an episode take a random step."""
        live = [seat for seat in self.seats if seat.task is not None]
        for seat, found in zip(live, self._try_call(live, _step_seat), strict=True):
            if found is None:
                continue
            seconds, told, is_over = found
            self.steps.append(seconds)
            seat.told, seat.num_turns = find_range_text((seat.told, told)), seat.num_turns + 1
            if is_over:
                seat.task = None

    def close(self) -> None:
        """Close all instances, and what they kept open for others."""
        built = [seat.environment for seat in self.seats if seat.environment is not None]
        self.stepper.run([environment.close for environment in built])
        self.stepper.run([environment.drain for environment in self.pooled])
        self.stepper.close()

    def _try_call(self, seats: Sequence[_Seat], call: Callable[[_Seat], T]) -> list[T | None]:
        """Return what `call` gives for each of `seats`; None where it broke, and the instance is given up."""
        results = self.stepper.run([partial(call, seat) for seat in seats])
        return [
            self._drop_seat(seat, r) if isinstance(r, Failure) else r
            for seat, r in zip(seats, results, strict=True)
        ]

    def _drop_seat(self, seat: _Seat, failure: Failure) -> None:
        """Count `failure` and give up the instance of `seat`."""
        self.failures[f"{failure.owner}/{failure.kind}"] += 1
        self.first = self.first or failure.message
        broken, seat.environment, seat.task = seat.environment, None, None
        if broken is None:
            return
        if failure.kind != "timeout":
            self.stepper.run([broken.close])
        elif isinstance(broken, Killable):
            broken.kill()


def load(
    make: Factory, *, instances: int, episodes: int, timeout: float = 30.0, seconds: float = 120.0
) -> Load:
    """Play `episodes` random episodes in so many `instances` at once.

    A call may take `timeout` seconds; after `seconds` no more episodes are begun.

    Raises:
        QuintainError: an instance cannot be built because of how it was asked for, or of a missing package.
    """
    before, held = resources(), memory([os.getpid(), *below(os.getpid())])
    test = _Test(make, instances, timeout)
    started, each = time.monotonic(), 0
    try:
        test.fill()
        tasks = _tasks(test, episodes)
        while tasks or any(seat.task is not None for seat in test.seats):
            if time.monotonic() - started > seconds:
                tasks = tasks[:0]
            num_begun = test.episodes
            test.start(tasks)
            tasks = tasks[test.episodes - num_begun :]
            each = each or max(0, memory([os.getpid(), *below(os.getpid())]) - held) // instances
            test.step()
            if tasks:
                test.fill()
            if test.episodes > 2 * episodes + instances:
                break
    finally:
        test.close()
    return Load(
        instances=instances,
        episodes=test.episodes,
        failures=dict(test.failures),
        first=test.first,
        starts=test.starts,
        steps=test.steps,
        seconds=time.monotonic() - started,
        memory=each,
        left=_find_left(before),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of `values` do not pass; 0 where there are none.

    Example: ``percentile([4.0, 1.0, 2.0, 3.0], 0.5)`` is 2.0.
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0.0


def _tasks(test: _Test, episodes: int) -> list[Task]:
    """Return the first training tasks, named by one of the instances."""
    environment = next((seat.environment for seat in test.seats if seat.environment is not None), None)
    if environment is None:
        return []
    named = test.stepper.run([lambda: [environment.task("train", index) for index in range(episodes)]])
    return [task for tasks in named if not isinstance(tasks, Failure) for task in tasks]


def _begin_seat(seat: _Seat) -> tuple[float, str]:
    """Start the episode of `seat`; return seconds and what it shows."""
    assert seat.environment is not None and seat.task is not None, "it has both"
    started = time.perf_counter()
    told = as_text(begin(seat.environment, seat.task))
    return time.perf_counter() - started, told


def _step_seat(seat: _Seat) -> tuple[float, str, bool]:
    """Take a random step in `seat`; return its seconds, what it shows, and whether the episode is over."""
    assert seat.environment is not None, "it has one"
    action = random_action(seat.environment, seat.rng, seat.told)
    started = time.perf_counter()
    result = advance(seat.environment, action)
    seconds = time.perf_counter() - started
    is_over = result.is_over or seat.num_turns + 1 >= seat.environment.max_turns
    return seconds, as_text(result.observation), is_over


def _find_left(before: Mapping[str, int]) -> dict[str, int]:
    """Return what there is more of than `before`, once it had time to end."""
    until = time.monotonic() + PATIENCE
    while True:
        more = {name: count - before[name] for name, count in resources().items() if count > before[name]}
        if not more or time.monotonic() > until:
            return more
        time.sleep(0.05)
