"""Agent models: does the policy look things up where it must, or as often as it must?

A table over what is known of a question of `stream`, and the pages read, learns by the method from a start that decides
at random whether to read. Then it is frozen. The number is its return on held-out questions, every page paid for. The
control forces its own first decisions, to read or to answer, dealt out anew among the tasks: as many of each, in other
places, with the same luck; what follows a page is the policy's again. In the null worlds all questions are open, or all
are closed, so that it does not matter which of them is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

from quintain.environments.catalog import find
from quintain.methods.toolrl import deep_research
from quintain.types import Group, Score, Task, derive_seed
from quintain.worlds.stream.game import Stream
from quintain_evidence.experiments.rl.act_more import ANSWER, READ, Reader, reader
from quintain_evidence.labs.observed import Moved, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table


class Forced(Reader):
    """An episode of which the first decision is given."""

    def __init__(self, stream: Stream, task: Task, first: int) -> None:
        super().__init__(stream, task)
        self.first: int | None = first

    def act(self, column: int, luck: float) -> Moved:
        """Read or answer as the policy says, but in the first turn as is given."""
        chosen = column if self.first is None else self.first
        self.first = None
        return super().act(chosen, luck)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the return of a frozen policy, and of the same with its first decisions dealt out."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("deep_research", seed, number)
        mixed = compared(options, own, 0.5)
        nulls = [compared(options, own, share) for share in (0.0, 1.0)]
        found.append(
            {
                "method": mixed["own"],
                "control": mixed["dealt"],
                "null_method": fmean(each["own"] for each in nulls),
                "null_control": fmean(each["dealt"] for each in nulls),
                "extra.gain": mixed["own"] - mixed["start"],
                "extra.closed": mixed["closed"],
                "extra.open": mixed["open"],
            }
        )
    return found


def compared(options: Mapping[str, Any], seed: int, closed: float) -> dict[str, float]:
    """Return what the trained policy comes to, with its own decisions and with dealt ones, and the start."""
    stream = find(str(options["world"]).replace("closed_book=0.5", f"closed_book={closed}"))()
    assert isinstance(stream, Stream), "the experiment is about reading"
    method = deep_research.method(deep_research.Config())
    batches, held_out = int(options["batches"]), int(options["held_out"])

    def played(policy: TablePolicy, split: str, first: int, count: int, size: int) -> list[Group]:
        tasks = tasks_of(stream, seed, split, first, count)
        return play_games(
            policy, lambda task: Reader(stream, task), tasks, size=size, seed=derive_seed(seed, split, first)
        )

    start = reader(stream, seed, early=0.5)
    trained = train_table(
        start,
        method,
        num_batches=batches,
        size=8,
        seed=seed,
        rate=float(options["rate"]),
        collect=lambda policy, batch: played(policy, "train", 8 * batch, 8, 8),
    ).policy
    own = played(trained, "eval", 0, held_out, 1)
    decided = [READ if episode_of(group).turns[0].action.text == "read" else ANSWER for group in own]
    dealt = Random(derive_seed(seed, "dealt")).sample(decided, len(decided))
    tasks = tasks_of(stream, seed, "eval", 0, held_out)
    given = {task.id: first for task, first in zip(tasks, dealt, strict=True)}
    forced = play_games(
        trained,
        lambda task: Forced(stream, task, given[task.id]),
        tasks,
        size=1,
        seed=derive_seed(seed, "eval", 0),
    )
    needs = [needed(stream, task) for task in tasks]
    return {
        "own": worth(own),
        "dealt": worth(forced),
        "start": worth(played(start, "eval", 0, held_out, 1)),
        "closed": share(decided, [not need for need in needs]),
        "open": share(decided, needs),
    }


def tasks_of(stream: Stream, seed: int, split: str, first: int, count: int) -> list[Task]:
    """Return `count` tasks of `split` from number `first` on, of those that belong to `seed`."""
    base = derive_seed(seed, split) % (1 << 40)
    return [stream.task("train" if split == "train" else "eval", base + first + i) for i in range(count)]


def needed(stream: Stream, task: Task) -> bool:
    """Return whether the answer to `task` is not told with it."""
    return Reader(stream, task).missing() > 0


def episode_of(group: Group) -> Any:
    """Return the one episode of `group`."""
    (episode,) = group.trajectories
    return episode


def worth(groups: Sequence[Group]) -> float:
    """Return the mean return of an episode, pages paid for."""
    return fmean(t.outcome.value for g in groups for t in g.trajectories if isinstance(t.outcome, Score))


def share(decided: Sequence[int], chosen: Sequence[bool]) -> float:
    """Return how often the first decision is to read, of the tasks that are `chosen`; 0 of none."""
    found = [first == READ for first, is_one in zip(decided, chosen, strict=True) if is_one]
    return fmean(found) if found else 0.0
