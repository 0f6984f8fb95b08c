"""Which kind of tasks next: a proposer that is paid for them, an optimist about learning, or what changes most.

A level is a name for tasks that are alike, such as a part of ``mix:sums?digits=1,sums?digits=2``. What a chooser knows
is a fold over recorded groups, so a resumed run chooses as the first one would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from quintain.types import Group, Task


def level_of(task: Task) -> str:
    """Return the level of `task`: the environment that it names."""
    return task.environment


class Chooser(Protocol):
    """What says of which levels the next tasks are."""

    def choose(self, levels: Sequence[str], count: int, seed: int) -> list[str]:
        """Return `count` levels out of `levels`."""
        ...

    def update(self, groups: Sequence[Group]) -> None:
        """Take in what became of the tasks of a step."""
        ...


def take(pool: Sequence[Task], chosen: Sequence[str]) -> list[Task]:
    """Return a task of `pool` for each of the levels `chosen`, none twice; a level with none left is passed over."""
    waiting: dict[str, list[Task]] = {}
    for task in pool:
        waiting.setdefault(level_of(task), []).append(task)
    return [waiting[level].pop(0) for level in chosen if waiting.get(level)]


def levels_in(pool: Sequence[Task]) -> list[str]:
    """Return the levels of `pool`, each once, in order."""
    return list(dict.fromkeys(map(level_of, pool)))


class Proposer:
    """A softmax over levels that learns by ∇ log π · (R - mean)/std over the proposals of a step (Agent0, 2511.16043).

    Args:
        value: groups of a step, one for each proposal → R of each.
        rate: learning rate of the logits.
    """

    def __init__(self, value: Callable[[Sequence[Group]], Sequence[float]], *, rate: float) -> None:
        self.value, self.rate = value, rate
        self.logits: dict[str, float] = {}

    def chances(self, levels: Sequence[str]) -> list[float]:
        """Return the probability of proposing each of `levels`."""
        logits = np.array([self.logits.get(level, 0.0) for level in levels])
        odds = np.exp(logits - logits.max())
        return (odds / odds.sum()).tolist()

    def choose(self, levels: Sequence[str], count: int, seed: int) -> list[str]:
        """See `Chooser.choose`."""
        drawn = np.random.default_rng(seed).choice(len(levels), count, p=self.chances(levels))
        places: list[int] = drawn.tolist()
        return [levels[place] for place in places]

    def update(self, groups: Sequence[Group]) -> None:
        """See `Chooser.update`."""
        own = [level_of(group.task) for group in groups]
        for level in own:
            self.logits.setdefault(level, 0.0)
        values = np.array(self.value(groups), np.float64)
        if len(values) < 2 or values.std() == 0:
            return
        advantages = (values - values.mean()) / values.std()
        known = list(self.logits)
        chances = dict(zip(known, self.chances(known), strict=True))
        slopes = dict.fromkeys(known, 0.0)
        for level, advantage in zip(own, advantages.tolist(), strict=True):
            for other in known:
                slopes[other] += advantage * ((other == level) - chances[other]) / len(own)
        for level, slope in slopes.items():
            self.logits[level] += self.rate * slope


def learnability(outcomes: Sequence[float]) -> float:
    """Return ν = √Var R / E R (Paprika, 2502.17543): [1, 0, 0, 1] is 1, and outcomes that are all 0 have none."""
    mean = sum(outcomes) / len(outcomes)
    variance = sum((value - mean) ** 2 for value in outcomes) / len(outcomes)
    return math.sqrt(variance) / mean if mean > 0 else 0.0


class Optimist:
    """Chooses the level with the highest mean ν + √(2 ln T / n), each once at first (UCB over levels; Paprika).

    Args:
        value: outcomes of a task → what its level is worth; ν unless given.
        relabel: level → level whose worth stands for its own; empty: each its own.
    """

    def __init__(
        self,
        value: Callable[[Sequence[float]], float] = learnability,
        relabel: Mapping[str, str] | None = None,
    ) -> None:
        self.value, self.relabel = value, dict(relabel or {})
        self.found: dict[str, list[float]] = {}

    def score(self, level: str, extra: Mapping[str, int]) -> float:
        """Return the upper bound of `level`; `extra` counts choices that are not known yet."""
        told = self.found.get(self.relabel.get(level, level), [])
        num = len(self.found.get(level, [])) + extra.get(level, 0)
        if not num:
            return math.inf
        total = sum(map(len, self.found.values())) + sum(extra.values())
        mean = sum(told) / len(told) if told else 0.0
        return mean + math.sqrt(2 * math.log(max(total, 1)) / num)

    def choose(self, levels: Sequence[str], count: int, seed: int) -> list[str]:
        """See `Chooser.choose`; of equal bounds the first, and nothing is left to chance."""
        extra: dict[str, int] = {}
        chosen: list[str] = []
        for _ in range(count):
            best = max(levels, key=lambda level: self.score(level, extra))
            extra[best] = extra.get(best, 0) + 1
            chosen.append(best)
        return chosen

    def update(self, groups: Sequence[Group]) -> None:
        """See `Chooser.update`."""
        for group in groups:
            if group.returns:
                self.found.setdefault(level_of(group.task), []).append(self.value(group.returns))


class Progress:
    """Draws levels as fast as success on them changes, in either direction (arXiv 1707.00183; 1704.03003).

    p = (1 - f) · |change| / Σ|change| + f / levels, with the change of the mean success from the `window` tasks before
    the last `window` to these. A level with fewer tasks, of which nothing is known, counts as changing by 1; where
    nothing changes, all are as likely. Success and no rewards, whose scales differ between environments. What falls is
    drawn as often as what rises: it is being forgotten.

    Args:
        window: tasks of a level that a mean is taken over.
        floor: f, the share that is drawn evenly, so that a level that stands still is looked at again.
    """

    def __init__(self, *, window: int, floor: float) -> None:
        self.window, self.floor = window, floor
        self.found: dict[str, list[float]] = {}
        """level → success on its last tasks, two windows at most"""

    def change(self, level: str) -> float:
        """Return how much success on `level` changed, 0 to 1."""
        known = self.found.get(level, [])
        if len(known) < 2 * self.window:
            return 1.0
        return abs(float(np.mean(known[self.window :])) - float(np.mean(known[: self.window])))

    def chances(self, levels: Sequence[str]) -> list[float]:
        """Return the probability of drawing each of `levels`."""
        changes = np.array([self.change(level) for level in levels])
        if not changes.sum():
            changes = np.ones(len(levels))
        return ((1 - self.floor) * changes / changes.sum() + self.floor / len(levels)).tolist()

    def choose(self, levels: Sequence[str], count: int, seed: int) -> list[str]:
        """See `Chooser.choose`."""
        drawn: list[int] = (
            np.random.default_rng(seed).choice(len(levels), count, p=self.chances(levels)).tolist()
        )
        return [levels[place] for place in drawn]

    def update(self, groups: Sequence[Group]) -> None:
        """See `Chooser.update`; a task of which every episode broke says nothing."""
        for group in groups:
            if group.scored:
                own = self.found.setdefault(level_of(group.task), [])
                own.append(sum(t.is_success for t in group.scored) / len(group.scored))
                del own[: -2 * self.window]
