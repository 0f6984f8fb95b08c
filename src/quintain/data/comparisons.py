"""Answers to one task that somebody ranked, and the token streams by which a reward model scores them.

A preference is a comparison of two answers; InstructGPT ranks four to nine (arXiv 2203.02155, section 3.5), and all of
them stay together: `comparison_samples` gives the answers of a comparison one number, by which batches keep them whole.
A `Labeller` ranks by a reward that is known, with the noise that people have.

A reward model reads its score *after* the last sampled token, whatever follows it: neither what the environment said
to it nor padding. A stream therefore ends with one token more, whose value, the one before it, is the score.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, overload

import numpy as np

from quintain.data.pairs import Ids, all_ids
from quintain.data.samples import imitation_samples
from quintain.errors import InvariantError, UsageError
from quintain.types import NOTHING, Comparison, Group, Pair, Sample, Score, Trajectory, derive_seed

REFUSALS: Mapping[str, str] = {
    "other_task": "its answers are of different tasks",
    "failure": "something broke in one of them",
    "one_sided": "in one of them nothing was sampled",
    "identical": "fewer than two of its answers differ",
    "contradicting": "another comparison says the opposite",
}
"""Why a comparison is refused."""


@dataclass(frozen=True, slots=True)
class Comparisons(Sequence[Comparison]):
    """What can be learned from, and how much was refused: ``Comparisons((one,), {"identical": 3})``."""

    comparisons: tuple[Comparison, ...]
    refused: Mapping[str, int] = NOTHING
    """by the names of `REFUSALS`"""

    @overload
    def __getitem__(self, index: int) -> Comparison: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Comparison]: ...
    def __getitem__(self, index: int | slice) -> Comparison | Sequence[Comparison]:
        """Return a comparison, or several."""
        return self.comparisons[index]

    def __len__(self) -> int:
        """Return the number of comparisons."""
        return len(self.comparisons)

    @property
    def metrics(self) -> dict[str, float]:
        """``data/comparisons``, ``data/ties`` (the share of pairs) and ``data/refused/REASON`` of what was refused."""
        ties = [a == b for each in self.comparisons for a, b in combinations(each.ranks, 2)]
        return {
            "data/comparisons": float(len(self.comparisons)),
            "data/ties": sum(ties) / max(len(ties), 1),
            **{f"data/refused/{reason}": float(count) for reason, count in self.refused.items()},
        }

    def __str__(self) -> str:
        """Return how many there are, and why the others were refused."""
        told = [f"{count} refused, because {REFUSALS[reason]}" for reason, count in self.refused.items()]
        return "; ".join([f"{len(self.comparisons)} comparisons", *told])


@dataclass(frozen=True, slots=True, kw_only=True)
class Labeller:
    """Ranks answers by their rewards as people would: ``Labeller(temperature=0.5).rank((1.0, 0.0), "seed")``.

    P(one is ranked above another) = σ((r₁ - r₂)/`temperature`), the Bradley-Terry model, which is Plackett's and
    Luce's for more than two: each reward gets Gumbel noise of that scale. 0 ranks by the rewards, where equal ones tie.
    The share `error_rate` of comparisons is ranked by chance (arXiv 1706.03741, section 2.2.3: P' = (1 - ε)·P + ε/2).
    Of two answers whose rewards, noise and all, differ by no more than `tie_band` none is better.
    """

    temperature: float = 0.0
    error_rate: float = 0.0
    tie_band: float = 0.0

    def __post_init__(self) -> None:
        """Raise a `UsageError` for noise that there is not."""
        for name, most in (("temperature", math.inf), ("error_rate", 1.0), ("tie_band", math.inf)):
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise UsageError(f"{name} of a labeller: got {value}; give a number from 0 to {most:g}")

    def rank(self, rewards: Sequence[float], *occasion: int | str) -> tuple[float, ...]:
        """Return the ranks of answers that are worth `rewards`; what is drawn depends on the `occasion` alone.

        Raises:
            UsageError: there is a `tie_band`, and not two answers.
        """
        if self.tie_band and len(rewards) != 2:
            raise UsageError(
                f"tie_band of a labeller: got {self.tie_band} for {len(rewards)} answers; give 0, or compare two"
            )
        rng = random.Random(derive_seed("labeller", *occasion))
        is_chance, chances = rng.random() < self.error_rate, [rng.random() for _ in rewards]
        if is_chance:
            return _places(chances)
        noise = [-math.log(-math.log(max(chance, 1e-300))) for chance in chances]
        seen = [reward + self.temperature * each for reward, each in zip(rewards, noise, strict=True)]
        if self.tie_band and abs(seen[0] - seen[1]) <= self.tie_band:
            return (0.0, 0.0)
        return _places(seen)

    def approves(self, reward: float, bar: float, *occasion: int | str) -> bool:
        """Return whether an answer that is worth `reward` is called good: ranked above something worth `bar`."""
        mine, other = self.rank((reward, bar), *occasion)
        return mine > other


def _places(values: Sequence[float]) -> tuple[float, ...]:
    """Return how many of `values` each of them is above."""
    return tuple(float(sum(other < value for other in values)) for value in values)


def label_groups(
    groups: Sequence[Group],
    labeller: Labeller,
    *,
    size: int = 2,
    seed: int = 0,
    bar: float | None = None,
) -> Comparisons:
    """Return the episodes of each group ranked by their outcomes, `size` in a comparison and each in one at most.

    With a `bar` each is judged by itself: rank 1 where it is called good (`Labeller.approves`), else 0.

    Of episodes that are the same token by token there is one. Of a group of eight with a size of two there are four
    comparisons at most; what is left over when the others are full is compared where it is two or more.

    Raises:
        UsageError: `size` is below 2.
    """
    if size < 2:
        raise UsageError(f"answers of a comparison: got {size}; give 2 or more")
    found: list[Comparison] = []
    for group in groups:
        first: dict[Ids, Trajectory] = {}
        for each in group.scored:
            first.setdefault(all_ids(each), each)
        distinct = list(first.values())
        for start in range(0, len(distinct), size):
            answers = tuple(distinct[start : start + size])
            if len(answers) > 1:
                rewards = [each.outcome.value for each in answers if isinstance(each.outcome, Score)]
                if bar is None:
                    ranks = labeller.rank(rewards, seed, *(each.seed for each in answers))
                else:
                    said = zip(rewards, answers, strict=True)
                    ranks = tuple(float(labeller.approves(r, bar, seed, each.seed)) for r, each in said)
                found.append(Comparison(answers=answers, ranks=ranks))
    return check_comparisons(found)


def as_comparisons(pairs: Iterable[Pair]) -> Comparisons:
    """Return preferences as comparisons of two."""
    return check_comparisons(
        Comparison(answers=(pair.chosen, pair.rejected), ranks=(1.0, 0.0)) for pair in pairs
    )


def check_comparisons(candidates: Iterable[Comparison]) -> Comparisons:
    """Return those of `candidates` that can be learned from, in order; the others are counted by `REFUSALS`."""
    counts, kept = Counter[str](), list[Comparison]()
    for comparison in candidates:
        if reason := _refusal(comparison):
            counts[reason] += 1
        else:
            kept.append(comparison)
    said = [_preferences(comparison) for comparison in kept]
    every = {pair for pairs in said for pair in pairs}
    found = [c for c, pairs in zip(kept, said, strict=True) if not any((b, a) in every for a, b in pairs)]
    counts["contradicting"] = len(kept) - len(found)
    return Comparisons(tuple(found), {reason: counts[reason] for reason in REFUSALS if counts[reason]})


def _refusal(comparison: Comparison) -> str | None:
    """Return why `comparison` by itself cannot be learned from; None where it can."""
    answers = comparison.answers
    if len({(each.task.environment, each.task.id) for each in answers}) > 1:
        return "other_task"
    if not all(isinstance(each.outcome, Score) for each in answers):
        return "failure"
    if not all(each.num_sampled for each in answers):
        return "one_sided"
    return "identical" if len(set(map(all_ids, answers))) < max(2, len(answers)) else None


def _preferences(comparison: Comparison) -> set[tuple[Ids, Ids]]:
    """Return which answers stand above which."""
    ranked = [(all_ids(a), rank) for a, rank in zip(comparison.answers, comparison.ranks, strict=True)]
    return {(a, b) for a, above in ranked for b, below in ranked if above > below}


def comparison_samples(
    comparisons: Sequence[Comparison],
    *,
    by: Literal["episode", "turn"] = "episode",
    max_length: int | None = None,
) -> list[Sample]:
    """Return the streams of all answers as `score_samples` has them, with their ranks and numbers of comparison."""
    found: list[Sample] = []
    first = 0
    for number, each in enumerate(comparisons):
        found += [
            replace(
                sample, pair=number, rank=each.ranks[sample.trajectory], trajectory=first + sample.trajectory
            )
            for sample in score_samples(each.answers, by=by, max_length=max_length)
        ]
        first += len(each.answers)
    return found


def score_samples(
    trajectories: Sequence[Trajectory],
    *,
    by: Literal["episode", "turn"] = "episode",
    max_length: int | None = None,
) -> list[Sample]:
    """Return streams in which the tokens that follow what is scored have loss weight 1: their values are the scores.

    By "episode" that is the end of the newest stream of each, one token in all; by "turn" the end of every turn, and
    the values of an episode add up to its score (arXiv 1706.03741, section 2.2.3). A stream of `max_length` tokens has
    no room for one more: its score is read before its last token.

    Raises:
        InvariantError: in an episode nothing was sampled.
    """
    if not trajectories:
        return []
    samples = imitation_samples(trajectories)
    newest = {sample.trajectory: sample for sample in samples}
    if len(newest) < len(trajectories):
        raise InvariantError(
            "episodes to score: got one in which nothing was sampled; record a Failure instead"
        )
    return [_mark_ends(each, by, max_length) for each in (newest.values() if by == "episode" else samples)]


def _mark_ends(sample: Sample, by: Literal["episode", "turn"], max_length: int | None) -> Sample:
    ends = np.flatnonzero(sample.turn_end)
    ends = ends[-1:] if by == "episode" else ends
    has_room = max_length is None or len(sample.token_ids) < max_length
    ids = np.append(sample.token_ids, np.int64(0)) if has_room else sample.token_ids
    places = np.minimum(ends + 1, len(ids) - 1)
    nothing = np.zeros(len(ids), np.float32)
    weight, turn_id = nothing.copy(), np.full(len(ids), -1, np.int64)
    weight[places], turn_id[places] = 1.0, sample.turn_id[ends]
    return Sample(
        token_ids=ids,
        loss_weight=weight,
        logprobs=nothing,
        advantages=nothing,
        returns=nothing,
        turn_id=turn_id,
        turn_end=np.zeros(len(ids), np.bool_),
        trajectory=sample.trajectory,
    )
