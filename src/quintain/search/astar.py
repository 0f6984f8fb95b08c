"""Costs of A* over plans: what the way has cost, and what is left (ToolChain*).

ToolChain* (arXiv 2310.13227) goes on from the open state of the lowest g + h. A step of the way costs little if solved
plans go the same way (their longest common subsequence) and if many samples chose it; a step that is imagined to be
left costs little if it stands late in solved plans, and if much of the imagined way is behind. Each step costs 0 to 1.
h is no lower bound of what is left, so that the plan that is found need not be the shortest.

Plans of other tasks name other things: what few plans name becomes a number, by the order in which a plan names it
(`rename_things`). Difference to the paper, whose memory keeps names: there, tools have the same names in every task.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from quintain.agents.experience import most_alike

Actions = Sequence[str]
MARK = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+")
"""What stands in front of a line of a list."""
WEIGHT = 0.5
"""α and β: how much memory counts beside samples, and beside what is imagined."""
COMMON = 0.5
"""Share of the plans from which on a word is one of the language, and names no thing."""


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """Solved plans: ``PlanMemory.learn([["load p1 into truck a", "drive truck a to a2"]])``."""

    plans: tuple[tuple[str, ...], ...] = ()
    """with numbers in the place of names"""
    words: frozenset[str] = frozenset()
    """which are no names"""

    @classmethod
    def learn(cls, plans: Sequence[Actions]) -> PlanMemory:
        """Return the memory of `plans`, shared words of which stay as they are."""
        plans = [plan for plan in plans if plan]
        counts = Counter(
            word for plan in plans for word in {word for action in plan for word in action.split()}
        )
        words = frozenset(word for word, count in counts.items() if count >= COMMON * len(plans))
        return cls(tuple(rename_things(plan, words) for plan in plans), words)

    def match_way(self, actions: Actions) -> float:
        """Return g1 of `actions`, how well solved plans agree: the best of LCS / length of the shorter.

        Example: a b d beside a b c and a c b d: 1 (of 2/3 and 3/3).
        """
        own = rename_things(actions, self.words)
        return max(
            (count_common(own, plan) / min(len(own), len(plan)) for plan in self.plans if own), default=0.0
        )

    def place_action(self, action: str) -> float:
        """Return where solved plans have `action`: the mean of (place, from 1) / length; h1. It is in these names.

        Of one that none has, the action that is most like it by words is meant; of one like none it is 0.
        """
        places = self._places(action)
        if not places:
            known = sorted({own for plan in self.plans for own in plan})
            place = most_alike(action, known)
            places = [] if place is None else self._places(known[place])
        return sum(places) / len(places) if places else 0.0

    def _places(self, action: str) -> list[float]:
        return [
            number / len(plan)
            for plan in self.plans
            for number, own in enumerate(plan, start=1)
            if own == action
        ]

    def cost_of_step(self, actions: Actions, share: float) -> float:
        """Return (1 - g1)^α (1 - g2)^(1 - α), the cost of the last of `actions`; g2 is the `share` of its samples."""
        return (1 - self.match_way(actions)) ** WEIGHT * (1 - share) ** (1 - WEIGHT)

    def cost_of_rest(self, actions: Actions, rest: Actions) -> float:
        """Return what is left after `actions` if that is `rest`: Σ (1 - h1)^β (1 - h2)^(1 - β).

        h2 is the share of the whole way that is behind. A `rest` of nothing is one step of which nobody knows anything.
        """
        behind = len(actions) / (len(actions) + max(len(rest), 1))
        named = rename_things([*actions, *rest], self.words)[len(actions) :]
        placed = [self.place_action(action) for action in named] or [0.0]
        return sum((1 - place) ** WEIGHT * (1 - behind) ** (1 - WEIGHT) for place in placed)


def rename_things(actions: Actions, words: Collection[str]) -> tuple[str, ...]:
    """Return `actions` with a number for each word that is none of `words`, by the order in which they come.

    Example: drive, to: "drive red to a", "drive red to b" become "drive #1 to #2", "drive #1 to #3".
    """
    numbers: dict[str, str] = {}
    return tuple(
        " ".join(
            word if word in words else numbers.setdefault(word, f"#{len(numbers) + 1}")
            for word in action.split()
        )
        for action in actions
    )


def count_common(one: Actions, other: Actions) -> int:
    """Return the length of the longest common subsequence. Example: a b d and a c b d: 3."""
    row = [0] * (len(other) + 1)
    for action in one:
        before = 0
        for place, wanted in enumerate(other, start=1):
            before, row[place] = (
                row[place],
                before + 1 if action == wanted else max(row[place], row[place - 1]),
            )
    return row[-1]


def read_plan(text: str) -> list[str]:
    """Return the actions in `text`, with lines or semicolons between. Example: "1. go a; take b": go a, take b."""
    parts = (MARK.sub("", part).strip() for line in text.splitlines() for part in line.split(";"))
    return [part for part in parts if part]
