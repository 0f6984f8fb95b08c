"""Streams of tasks: a fresh one every time, a fixed set, or a mixture of streams.

A curriculum numbers its tasks; step `s` of a run that takes `count` tasks a step gets the tasks numbered `s * count`
to `s * count + count - 1`. Task number n depends on n and nothing else.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from quintain.data.spread import Spread
from quintain.errors import UsageError
from quintain.types import Split, Task, derive_seed


class TaskSource(Protocol):
    """What can name its tasks by number; every `Environment` can."""

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`."""
        ...


@runtime_checkable
class Finite(Protocol):
    """What can say how many tasks it has."""

    def num_tasks(self, split: Split) -> int | None:
        """Return how many tasks of `split` there are; None for no end."""
        ...


class Curriculum:
    """A numbered stream of tasks; a subclass says which task has which number."""

    def at(self, index: int) -> Task:
        """Return task number `index` of the stream, index >= 0."""
        raise NotImplementedError(f"{type(self).__name__} must define at(self, index)")

    def draw(self, step: int, count: int) -> tuple[Task, ...]:
        """Return the `count` tasks of `step`; steps never overlap as long as `count` stays the same.

        Raises:
            UsageError: `step` is negative or `count` is not positive.
        """
        if step < 0 or count < 1:
            raise UsageError(
                f"drawing tasks needs step >= 0 and count >= 1: got step {step} and count {count}; "
                "check the number of tasks per step"
            )
        return tuple(self.at(step * count + place) for place in range(count))


class TaskStream(Curriculum):
    """Fresh tasks: number n is the environment's task n of `split`.

    With `num_tasks` there are only that many, and each pass over them has an order of its own. With `first` number n
    is the environment's task first + n.
    """

    def __init__(
        self,
        make_environment: Callable[[], TaskSource],
        split: Split = "train",
        num_tasks: int | None = None,
        first: int = 0,
    ) -> None:
        """Number the tasks of one environment that `make_environment` returns."""
        check_size("num_tasks", num_tasks)
        self.first = first
        self.source = make_environment()
        self.split: Split = split
        self.num_tasks = num_tasks

    def at(self, index: int) -> Task:
        """Return task number `index`."""
        if self.num_tasks is not None:
            index = shuffle_place(index, self.num_tasks)
        return self.source.task(self.split, self.first + index)


class Fixed(Curriculum):
    """A fixed set of tasks, over and over; in the order given, or shuffled anew for every pass."""

    def __init__(self, tasks: Sequence[Task], shuffle: bool = False) -> None:
        """Take one task or more."""
        check_size("a fixed set of tasks", len(tasks))
        self.tasks = tuple(tasks)
        self.shuffle = shuffle

    def at(self, index: int) -> Task:
        """Return task number `index`, counted round and round."""
        size = len(self.tasks)
        return self.tasks[shuffle_place(index, size) if self.shuffle else index % size]


class TaskMixture(Curriculum):
    """Several streams in fixed proportions: ``TaskMixture(((easy, 3.0), (hard, 1.0)))``.

    Spread evenly, without randomness (`quintain.data.spread`). Every stream is read in order, with no gaps.
    """

    def __init__(self, parts: Sequence[tuple[Curriculum, float]]) -> None:
        """Take pairs (stream, weight); weights are positive and need not add up to 1."""
        check_size("a mixture", len(parts))
        self.streams = tuple(stream for stream, _ in parts)
        self.spread = Spread([weight for _, weight in parts])

    def counts(self, num: int) -> tuple[int, ...]:
        """Return how many of the first `num` tasks come from each stream; they add up to `num`."""
        return self.spread.counts(num)

    def at(self, index: int) -> Task:
        """Return task number `index`: that of the one stream whose count grows with it."""
        stream, place = self.spread.deal(index)
        return self.streams[stream].at(place)


def draw_held_out(make_environment: Callable[[], TaskSource], count: int, first: int = 0) -> tuple[Task, ...]:
    """Return `count` tasks of the evaluation split from number `first` on; their seeds are disjoint from training's.

    Where there are fewer, each comes once.
    """
    stream = TaskStream(make_environment, "eval", first=first)
    known = stream.source.num_tasks("eval") if isinstance(stream.source, Finite) else None
    return stream.draw(0, count if known is None else min(count, known))


def shuffle_place(index: int, size: int) -> int:
    """Return the place among `size` that number `index` has when every pass is shuffled anew."""
    order = list(range(size))
    random.Random(derive_seed("curriculum", size, index // size)).shuffle(order)
    return order[index % size]


def check_size(what: str, size: int | None) -> None:
    """Raise a `UsageError` when `size` is given and not positive."""
    if size is not None and size < 1:
        raise UsageError(f"{what} needs at least one task: got {size}; give one or more")
