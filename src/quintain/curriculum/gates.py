"""Gates: which tasks can still teach something, from recorded statistics.

A group whose returns are all equal gives a group-relative method no gradient (dynamic sampling, DAPO, arXiv
2503.14476); a task that is always solved, or never, is expected to
give such groups. A failure of the machinery is no evidence about a task, and a gate always leaves tasks to train on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quintain.curriculum.streams import Curriculum
from quintain.errors import UsageError
from quintain.types import Group, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What happened on a task so far: ``Record(num=8, num_success=3)``; failures are not counted."""

    num: int = 0
    """scored episodes"""
    num_success: int = 0


def records_of(groups: Iterable[Group]) -> dict[str, Record]:
    """Return the record of each task id in `groups`; a task with failures only has a record of zeros."""
    wins: dict[str, list[bool]] = {}
    for group in groups:
        wins.setdefault(group.task.id, []).extend(t.is_success for t in group.scored)
    return {name: Record(num=len(won), num_success=sum(won)) for name, won in wins.items()}


def merge(first: Mapping[str, Record], second: Mapping[str, Record]) -> dict[str, Record]:
    """Return the sums of two sets of records, task by task."""
    total = dict(first)
    for name, record in second.items():
        known = total.get(name, Record())
        total[name] = Record(num=known.num + record.num, num_success=known.num_success + record.num_success)
    return total


def is_open(record: Record, *, low: float = 0.0, high: float = 1.0, min_num: int = 8) -> bool:
    """Return whether a task may still teach: its success rate is strictly between `low` and `high`.

    A task with fewer than `min_num` scored episodes is open: too little is known. With the defaults only
    tasks that were always or never solved are closed; ``low=-1`` keeps the unsolved ones open.
    """
    if record.num < min_num:
        return True
    return low < record.num_success / record.num < high


class Gated(Curriculum):
    """The open tasks of a stream: looks at `lookahead` tasks for each one it needs and takes the open ones.

    What is drawn depends on the step and on `records` only, so give it the records of the journal. When too
    few of the tasks looked at are open, the closed ones fill up, in order.
    """

    def __init__(self, stream: Curriculum, records: Mapping[str, Record], lookahead: int = 4) -> None:
        """Gate `stream` by `records`, one for each task id; a task without a record is open."""
        if lookahead < 1:
            raise UsageError(f"lookahead of a gate must be at least 1: got {lookahead}; 4 is the default")
        self.stream = stream
        self.records = records
        self.lookahead = lookahead

    def draw(self, step: int, count: int) -> tuple[Task, ...]:
        """Return `count` tasks of `step`: open ones, then closed ones, then repeats."""
        seen: dict[str, Task] = {}
        repeated: list[Task] = []
        for task in self.stream.draw(step, count * self.lookahead):
            if task.id in seen:
                repeated.append(task)
            else:
                seen[task.id] = task
        opened = [task for task in seen.values() if is_open(self.records.get(task.id, Record()))]
        closed = [task for task in seen.values() if not is_open(self.records.get(task.id, Record()))]
        return tuple([*opened, *closed, *repeated][:count])

    def at(self, index: int) -> Task:
        """Return task number `index` of a run that takes one task a step."""
        return self.draw(index, 1)[0]


def open_first(worths: Sequence[float], nearness: Sequence[float], band: tuple[float, float]) -> list[int]:
    """Return the places of all tasks: those whose worth is in `band`, most `nearness` first, then the others in order.

    Args:
        worths: success that is expected of each task.
        nearness: how much each is like a failure.
        band: least and most success that is expected of an open task.
    """
    is_open = [band[0] <= worth <= band[1] for worth in worths]
    keys = [(0.0, -near) if own else (1.0, 0.0) for own, near in zip(is_open, nearness, strict=True)]
    return sorted(range(len(keys)), key=keys.__getitem__)
