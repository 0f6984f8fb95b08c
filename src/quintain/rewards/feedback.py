"""Remarks as rewards: a remark is a template with parameters, a pool weighs all of them (M3HF, arXiv 2503.02077).

There are four templates: an event (words in what was
done, or in what was seen next), a distance (a number in what is seen fell), a proximity (that number is small), and
time (each turn). A new remark weighs 1/M of M; the older ones times α; all together at most 1. After a phase the newest
gains by a bonus where the environment's own return rose, and loses a part of its weight where that fell. What the
environment pays is added as it is, whatever remarks say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from quintain.errors import DataError, suggestion
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Trajectory, as_text

Template = Literal["event", "distance", "proximity", "time"]
TEMPLATES: tuple[Template, ...] = get_args(Template)
HIGHEST = 1.0
"""Most that a remark may pay for a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A template and what it is filled with: ``Remark(template="event", value=0.2, seats=("A",), action="say")``."""

    template: Template
    value: float
    """what a turn is paid, -1 to 1; of a distance, for each 1 by which it fell"""
    seats: tuple[str, ...] = ()
    """whose turns are meant; none: everybody's"""
    action: str = ""
    """of an event: words in what was done"""
    seen: str = ""
    """of an event: words in what was seen next"""
    number: str = ""
    """of a distance or proximity: the word in front of the number, as in ``fuel 3`` or ``fuel = 3``"""
    within: float = 0.0
    """of a proximity: the number is at most this"""

    def __post_init__(self) -> None:
        """Refuse a template that is none, or is not filled as it must be."""
        name = self.template
        if name not in TEMPLATES:
            raise DataError(f"template of a remark: got {name!r:.80}; {suggestion(name, TEMPLATES)}")
        if not -HIGHEST <= self.value <= HIGHEST:
            raise DataError(f"value of a remark: got {self.value}; give a number from -1 to 1")
        needs_number = name in ("distance", "proximity")
        if (name == "event") != bool(self.action or self.seen) or needs_number != bool(self.number):
            raise DataError(
                f"remark {name}: got action={self.action!r}, seen={self.seen!r}, number={self.number!r}; an event has "
                "action or seen, a distance or proximity has number, and time none of them"
            )

    def measure(self, trajectory: Trajectory) -> list[float]:
        """Return what it pays for every turn of `trajectory`."""
        meant = [
            not turn.is_internal and (not self.seats or turn.speaker in self.seats)
            for turn in trajectory.turns
        ]
        return [_pay_turn(self, trajectory, place) if own else 0.0 for place, own in enumerate(meant)]


@dataclass(kw_only=True)
class RemarkPool:
    """Remarks and their weights: ``pool.add(remark); …; pool.judge(-0.1)``."""

    decay: float = 0.9
    """α: what an older weight is multiplied by when a remark comes"""
    bonus: float = 0.1
    """β: what the newest weight gains where the return rose"""
    cut: float = 1.0
    """which part of the newest weight goes where the return fell"""
    remarks: list[Remark] = field(default_factory=list[Remark])
    weights: list[float] = field(default_factory=list[float])

    def add(self, remark: Remark) -> None:
        """Take in a remark: it weighs 1/M of M, the older ones times α, all together at most 1."""
        self.remarks.append(remark)
        self.weights = admit_weight(self.weights, decay=self.decay)

    def judge(self, change: float) -> None:
        """Weigh the newest remark by the `change` of the environment's own return since it was made."""
        self.weights = judge_weights(self.weights, change, bonus=self.bonus, cut=self.cut)

    def pay(self, groups: Sequence[Group]) -> list[Group]:
        """Return `groups` paid by the environment and by the remarks; without remarks that weigh, as they are."""
        paid = [
            Term(
                name=f"remark_{number}",
                measure=remark.measure,
                weight=weight,
            )
            for number, (remark, weight) in enumerate(zip(self.remarks, self.weights, strict=True), 1)
            if weight
        ]
        return apply_all(groups, [environment_reward(), *paid]) if paid else list(groups)


def admit_weight(weights: Sequence[float], *, decay: float) -> list[float]:
    """Return `weights` times `decay`, and 1/M behind them, M being how many there are then; at most 1 together."""
    return bound_sum([*(weight * decay for weight in weights), 1 / (len(weights) + 1)])


def judge_weights(weights: Sequence[float], change: float, *, bonus: float, cut: float) -> list[float]:
    """Return `weights`, the last one plus `bonus` after a rise, times 1 - `cut` after a fall; at most 1 together."""
    if not weights or not change:
        return list(weights)
    last = weights[-1]
    return bound_sum([*weights[:-1], last + bonus if change > 0 else last * (1 - cut)])


def bound_sum(weights: Sequence[float]) -> list[float]:
    """Return `weights`, which are 0 or more, divided by their sum where that is above 1."""
    total = max(sum(weights), 1.0)
    return [weight / total for weight in weights]


def _pay_turn(remark: Remark, trajectory: Trajectory, place: int) -> float:
    """Return what `remark` pays the turn `place`."""
    turn = trajectory.turns[place]
    is_last = place == len(trajectory.turns) - 1
    after = as_text(trajectory.final_observation if is_last else trajectory.turns[place + 1].observation)
    if remark.template == "time":
        return remark.value
    if remark.template == "event":
        is_done = has_words(turn.action.text, remark.action) and has_words(after, remark.seen)
        return remark.value * is_done
    found = find_number(after, remark.number)
    if remark.template == "proximity":
        return remark.value * (found is not None and found <= remark.within)
    before = find_number(as_text(turn.observation), remark.number)
    return 0.0 if found is None or before is None else remark.value * (before - found)


def has_words(text: str, words: str) -> bool:
    """Return whether `words` stand one after the other in `text`, whatever is between them and however written."""
    wanted = re.findall(r"\w+", words.lower())
    found = re.findall(r"\w+", text.lower())
    return any(found[k : k + len(wanted)] == wanted for k in range(len(found) - len(wanted) + 1))


def find_number(text: str, word: str) -> float | None:
    """Return the first number that stands behind `word` in `text`, with a sign or colon between them or not."""
    found = re.search(rf"\b{re.escape(word)}\s*[=:]?\s*(-?\d+(?:\.\d+)?)", text, re.IGNORECASE)
    return float(found[1]) if found else None
