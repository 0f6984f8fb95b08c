"""A memory of experience: the solved episode that is most like a new task, told to whoever acts (AndroidGen).

An episode is found by the words of what it began with, and told as what was asked and what was done. That of the same
task is never found: it would be the answer. Of each task the shortest solved episode is kept; of a held-out task none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.agents.deliberation import describe_action
from quintain.memory.bank import Entry
from quintain.types import Group, Trajectory, as_text, flatten_scored

TOLD = "A task like this one was solved:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A solved episode: ``Solved(task="web/train/3", begins="Task: open red lamp.", actions=("click lamps",))``."""

    task: str
    begins: str
    """what the agent was shown first"""
    actions: tuple[str, ...]

    def words(self) -> str:
        """Return it as an agent is told of it."""
        return f"{TOLD} {self.begins} Done: {'; '.join(self.actions)}."


class Experience:
    """What was solved so far, a state of a run: ``Experience().find("web/train/9", "Task: open blue lamp.")``."""

    def __init__(self) -> None:
        """Begin without any."""
        self._solved: dict[str, Solved] = {}

    def __len__(self) -> int:
        """Return how many tasks are known."""
        return len(self._solved)

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the solved episodes of `groups`; see `quintain.methods.method.State`."""
        for trajectory in flatten_scored(groups):
            if trajectory.is_success and trajectory.turns and not trajectory.task.is_held_out:
                found = as_experience(trajectory)
                known = self._solved.get(found.task)
                if known is None or len(found.actions) < len(known.actions):
                    self._solved[found.task] = found

    def find(self, task: str, begins: str) -> tuple[float, Solved] | None:
        """Return the likeness of the episode that is most like `task`, and it; None where nothing is like it."""
        others = [solved for solved in self._solved.values() if solved.task != task]
        place = most_alike(begins, [solved.begins for solved in others])
        return None if place is None else (likeness(begins, others[place].begins), others[place])


def as_experience(trajectory: Trajectory) -> Solved:
    """Return `trajectory`, which is solved, as it is kept."""
    own = [turn for turn in trajectory.turns if not turn.is_internal]
    return Solved(
        task=trajectory.task.id,
        begins=as_text(own[0].observation),
        actions=tuple(describe_action(turn.action) for turn in own),
    )


def most_alike(text: str, others: Sequence[str]) -> int | None:
    """Return which of `others` is most like `text`, the first of equals; None where none shares a word with it."""
    found = [likeness(text, other) for other in others]
    best = max(found, default=0.0)
    return found.index(best) if best > 0 else None


def rank_by_likeness(query: str, entries: Sequence[Entry]) -> list[float]:
    """Return the cosine of the words of `query` with the key of each of `entries` of a bank."""
    return [likeness(query, entry.key) for entry in entries]


def likeness(one: str, other: str) -> float:
    """Return the cosine of the counts of words of two texts, in lower case; 0 where one has no word."""
    left, right = words(one), words(other)
    norms = math.sqrt(sum(n * n for n in left.values()) * sum(n * n for n in right.values()))
    return sum(left[word] * right[word] for word in left) / norms if norms else 0.0


def words(text: str) -> Mapping[str, int]:
    """Return how often each word is in `text`."""
    return Counter(re.findall(r"\w+", text.lower()))
