"""Groups to preference pairs: where the two sides come from, and which pairs are refused.

A source pairs episodes of one task: the best with the worst, a success with a failure, the better half with the worse
(`best_and_worst`, `pair_wins_with_losses`, `halves`), the expert's with the agent's (`expert_and_agent`, ETO, arXiv
2403.02502), two ways on from the same turn by the value of the step (`step_pairs`, IPR, 2406.11176), children of one
node of a tree by what a search found them worth (`siblings`), of which `extremes` takes the best and the worst, or some
ways on by what a critic says of them (`across_halves`, SWEET-RL, 2503.15478).

What every source makes goes through `check_pairs`: a pair of which one side has nothing to train on, whose sides are
the same, are of different tasks or differ by no more than a margin, whose rejected side was cut by a limit of whoever
collected it, or which another pair says the other way round, is refused and counted. The result depends on what is
given alone: of equal outcomes the lower index comes first.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import overload

from quintain.data.samples import num_shared
from quintain.errors import UsageError
from quintain.types import NOTHING, Group, Pair, Score, Stop, Trajectory, derive_seed

REFUSALS: Mapping[str, str] = {
    "other_task": "its sides are of different tasks",
    "failure": "something broke on one side",
    "one_sided": "one side has nothing to train on",
    "identical": "its sides are the same token by token",
    "cut": "the rejected side was cut by a limit that is not the task's: no failure of judgement",
    "margin": "its sides differ by no more than the margin",
    "contradicting": "another pair says the opposite",
}
"""Why a pair is refused."""


@dataclass(frozen=True, slots=True)
class Pairs(Sequence[Pair]):
    """Preferences that can be learned from, and how many were refused: ``Pairs((pair,), {"margin": 3})``."""

    pairs: tuple[Pair, ...]
    refused: Mapping[str, int] = NOTHING
    """by the names of `REFUSALS`"""

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        """Return a pair, or several."""
        return self.pairs[index]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.pairs)

    @property
    def metrics(self) -> dict[str, float]:
        """``data/pairs``; ``data/refused/REASON`` of what was refused; mean turns of both sides of what was not.

        Failures are long: a loss that sums over tokens sees the difference.
        """
        turns = {
            "chosen": [len(pair.chosen.turns) for pair in self.pairs],
            "rejected": [len(pair.rejected.turns) for pair in self.pairs],
        }
        return {
            "data/pairs": float(len(self.pairs)),
            **{f"data/refused/{reason}": float(count) for reason, count in self.refused.items()},
            **{f"data/{side}_turns": fmean(counts) for side, counts in turns.items() if counts},
        }

    def __str__(self) -> str:
        """Return how many there are, and why the others were refused."""
        told = [f"{count} refused, because {REFUSALS[reason]}" for reason, count in self.refused.items()]
        return "; ".join([f"{len(self.pairs)} pairs", *told])


def check_pairs(candidates: Iterable[Pair], *, margin: float | None = 0.0) -> Pairs:
    """Return those of `candidates` that can be learned from, in order; the others are counted.

    Sides must differ by more than `margin`; None: margins mean nothing, as in preferences that people gave.
    """
    counts, kept = Counter[str](), list[Pair]()
    for pair in candidates:
        reason = refusal(pair, margin)
        if reason:
            counts[reason] += 1
        else:
            kept.append(pair)
    said = [(all_ids(pair.chosen), all_ids(pair.rejected)) for pair in kept]
    opposite = {(rejected, chosen) for chosen, rejected in said}
    found = [pair for pair, sides in zip(kept, said, strict=True) if sides not in opposite]
    counts["contradicting"] = len(kept) - len(found)
    return Pairs(tuple(found), {reason: counts[reason] for reason in REFUSALS if counts[reason]})


def join_pairs(*parts: Pairs) -> Pairs:
    """Return the pairs of several sources, one after the other, and all that they refused."""
    counts = sum((Counter(part.refused) for part in parts), Counter[str]())
    return Pairs(
        tuple(pair for part in parts for pair in part),
        {reason: counts[reason] for reason in REFUSALS if counts[reason]},
    )


def refusal(pair: Pair, margin: float | None = 0.0) -> str | None:
    """Return why `pair` by itself cannot be learned from, a name of `REFUSALS`; None where it can."""
    one, other = pair.chosen, pair.rejected
    if (one.task.environment, one.task.id) != (other.task.environment, other.task.id):
        return "other_task"
    if not (isinstance(one.outcome, Score) and isinstance(other.outcome, Score)):
        return "failure"
    if all_ids(one) == all_ids(other):
        return "identical"
    shared = num_shared(pair) if pair.level == "turn" else 0
    if not all(any(turn.completion.token_ids for turn in side.turns[shared:]) for side in (one, other)):
        return "one_sided"
    if other.stop.is_cut and not (pair.level == "turn" and other.stop is Stop.CUT):
        return "cut"  # of turns that are compared no more than they are may have been asked for
    return "margin" if margin is not None and not pair.margin > max(margin, 0.0) else None


def best_and_worst(groups: Sequence[Group], *, margin: float = 0.0) -> Pairs:
    """Return the best against the worst of each group of two or more, where they differ by more than `margin`."""
    ranked = [_rank(group) for group in groups]
    return check_pairs((_pair(own[0], own[-1]) for own in ranked if len(own) > 1), margin=margin)


def pair_wins_with_losses(groups: Sequence[Group], count: int = 1) -> Pairs:
    """Return up to `count` pairs of each group: one that solved the task and one that did not, drawn by their seeds.

    No episode is in two pairs (M-DPO, arXiv 2409.02392, pairs one right with one wrong answer at random).
    """
    found: list[Pair] = []
    for group in groups:
        sides: list[list[Trajectory]] = []
        for is_success in (True, False):
            own = [each for each in group.scored if each.is_success == is_success]
            sides.append(
                random.Random(derive_seed("pairs", *(each.seed for each in own))).sample(own, len(own))
            )
        found += [
            Pair(chosen=won, rejected=lost, margin=1.0)
            for won, lost in list(zip(*sides, strict=False))[:count]
        ]
    return check_pairs(found)


def best_and_lower(groups: Sequence[Group], *, margin: float = 0.0) -> Pairs:
    """Return the best of each group in which one solved the task, against every episode of a lower outcome.

    Lower by more than `margin`: where small costs are part of an outcome, the best is otherwise the cheapest.
    """
    found: list[Pair] = []
    for group in groups:
        ranked = _rank(group)
        if any(each.is_success for each in ranked):
            found += [_pair(ranked[0], other) for other in ranked[1:] if _value(other) < _value(ranked[0])]
    return check_pairs(found, margin=margin)


def halves(groups: Sequence[Group], *, share: float = 0.5, margin: float = 0.0) -> Pairs:
    """Return the best `share` of each group against as many of its worst: the best with the worst, and so on inwards.

    Raises:
        UsageError: `share` is not above 0 and at most a half.
    """
    if not 0 < share <= 0.5:
        raise UsageError(f"share of the better side: got {share}; give a number above 0 and at most .5")
    found: list[Pair] = []
    for group in groups:
        ranked = _rank(group)
        for place in range(math.floor(share * len(ranked) + 1e-9)):
            found.append(_pair(ranked[place], ranked[-1 - place]))
    return check_pairs(found, margin=margin)


def expert_and_agent(
    groups: Sequence[Group], experts: Mapping[str, Trajectory], *, margin: float = 0.0
) -> Pairs:
    """Return each episode of `groups` against the expert's of the same task, the higher outcome chosen (ETO).

    `experts` has episodes by the names of their tasks; a task without one has no pair. Outcomes are what the
    environment said of both: where the published code sets the expert's to 1, ties become pairs.
    """
    found: list[Pair] = []
    for group in groups:
        expert = experts.get(group.task.id)
        if expert is not None and isinstance(expert.outcome, Score):
            found += [_pair(*_higher_first(expert, agent)) for agent in group.scored]
    return check_pairs(found, margin=margin)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a state is worth, by the returns of episodes that were played on from it: ``Estimate((1, 0, 1))``."""

    returns: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the returns."""
        return fmean(self.returns)

    @property
    def variance(self) -> float:
        """The unbiased variance of `mean`, V(1 - V)/n in expectation where returns are 0 or 1; 0 of one return."""
        num = len(self.returns)
        if num < 2:
            return 0.0
        return sum((value - self.mean) ** 2 for value in self.returns) / (num - 1) / num


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The expert's episode, and the agent's way on from before a turn: ``Deviation(expert=e, agent=a, turn=2, …)``."""

    expert: Trajectory
    agent: Trajectory
    """begins with the expert's first `turn` turns"""
    turn: int
    expert_value: Estimate
    """of the state after the expert's turn"""
    agent_value: Estimate
    """of the state after the agent's turn, by the same scorer"""


def step_pairs(
    deviations: Sequence[Deviation], *, margin: float = 0.5, is_action_only: bool = False
) -> Pairs:
    """Return a pair of each deviation in which outcome *and* step value of one side are higher by more than `margin`.

    Sides are what follows the shared turns, or with `is_action_only` the one turn in which they part (IPR, arXiv
    2406.11176, section 3.3).
    """
    return check_pairs((_step_pair(each, margin, is_action_only) for each in deviations), margin=margin)


def _step_pair(each: Deviation, margin: float, is_action_only: bool) -> Pair:
    """Return the pair of a deviation; its margin is the smaller of both differences, 0 where they disagree."""
    steps = each.expert_value.mean - each.agent_value.mean
    outcomes = _value(each.expert) - _value(each.agent)
    agree = math.copysign(1.0, steps) == math.copysign(1.0, outcomes)
    sides = [
        replace(side, turns=side.turns[: each.turn + 1]) if is_action_only else side
        for side in (each.expert, each.agent)
    ]
    better, worse = sides if outcomes > 0 else reversed(sides)
    return Pair(
        chosen=better,
        rejected=worse,
        level="turn",
        margin=min(abs(steps), abs(outcomes)) if agree else 0.0,
    )


def siblings(families: Sequence[Sequence[tuple[Trajectory, float]]], *, margin: float = 0.0) -> Pairs:
    """Return every two children of a node whose values differ by more than `margin`, the higher chosen (Agent Q).

    A child is an episode up to and with its own turn, with its value; one that a search never visited has none, and is
    not in its family. Example: values .9, .85, .3 and margin .2 → the first and the second against the third.
    """
    found: list[Pair] = []
    for family in families:
        ranked = sorted(family, key=lambda child: -child[1])
        found += [
            Pair(chosen=better, rejected=worse, level="turn", margin=high - low)
            for place, (better, high) in enumerate(ranked)
            for worse, low in ranked[place + 1 :]
        ]
    return check_pairs(found, margin=margin)


def extremes(families: Sequence[Sequence[tuple[Trajectory, float]]], *, margin: float = 0.0) -> Pairs:
    """Return the child of the highest value in each family against that of the lowest (MPO, arXiv 2503.02682).

    Among equal values it is chance that decides, by the children's seeds: the first of them is no better than the rest.
    Example: values .2, .8, .8, .2 → one of the middle ones against one of the outer ones.
    """
    found: list[Pair] = []
    for family in families:
        ranked = sorted(family, key=lambda child: (-child[1], derive_seed("ties", child[0].seed)))
        if len(ranked) > 1:
            (best, high), (worst, low) = ranked[0], ranked[-1]
            found.append(Pair(chosen=best, rejected=worst, level="turn", margin=high - low))
    return check_pairs(found, margin=margin)


def across_halves(
    families: Sequence[Sequence[tuple[Trajectory, float]]], count: int, *, margin: float = 0.0
) -> Pairs:
    """Return up to `count` pairs of each family: one of its better half with one of the worse, drawn by their seeds.

    Families as in `siblings`, in the middle of which an odd one belongs to no half. No two pairs of a family are the
    same (SWEET-RL, arXiv 2503.15478, draws 4 of 16 ways on).
    """
    found: list[Pair] = []
    for family in families:
        ranked = sorted(family, key=lambda child: -child[1])
        half = len(ranked) // 2
        every = list(product(ranked[:half], ranked[len(ranked) - half :]))
        rng = random.Random(derive_seed("halves", *(child.seed for child, _ in ranked)))
        found += [
            Pair(chosen=better, rejected=worse, level="turn", margin=high - low)
            for (better, high), (worse, low) in rng.sample(every, min(count, len(every)))
        ]
    return check_pairs(found, margin=margin)


def top_share(pairs: Pairs, share: float) -> Pairs:
    """Return the `share` of `pairs` with the largest margins, at least one, in order; ties with the last stay (Optima).

    Raises:
        UsageError: `share` is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise UsageError(f"share of pairs: got {share}; give a number above 0 and at most 1")
    if not pairs:
        return pairs
    margins = sorted((pair.margin for pair in pairs), reverse=True)
    cut = margins[max(1, math.floor(share * len(margins) + 1e-9)) - 1]
    return replace(pairs, pairs=tuple(pair for pair in pairs if pair.margin >= cut))


def _rank(group: Group) -> list[Trajectory]:
    return sorted(group.scored, key=lambda trajectory: (-_value(trajectory), trajectory.index))


def _value(trajectory: Trajectory) -> float:
    assert isinstance(trajectory.outcome, Score), "scored trajectories have a Score"
    return trajectory.outcome.value


def _higher_first(one: Trajectory, other: Trajectory) -> tuple[Trajectory, Trajectory]:
    return (one, other) if _value(one) >= _value(other) else (other, one)


def _pair(better: Trajectory, worse: Trajectory) -> Pair:
    return Pair(chosen=better, rejected=worse, margin=_value(better) - _value(worse))


Ids = tuple[tuple[int, ...], ...]


def all_ids(trajectory: Trajectory) -> Ids:
    """Return all ids of an episode, what was shown and what was sampled in turn."""
    return tuple(ids for turn in trajectory.turns for ids in (turn.prompt_ids, turn.completion.token_ids))
