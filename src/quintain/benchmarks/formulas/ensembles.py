"""Ensembles of reward models: what they pay a turn, and what they ask for next, each beside a plain second version."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from statistics import fmean, pstdev, pvariance
from types import ModuleType

import numpy as np

from quintain.benchmarks.formulas.formula import Formula, Rng


@dataclass(frozen=True)
class Told:
    """What members say of turns: ``Told(scores=[[3.0]], compared=[[0.0, 2.0]])``."""

    scores: list[list[float]]
    """[member][turn]"""
    compared: list[list[float]]
    """[member][turn that people compared]"""


def draw_told(rng: Rng) -> Told:
    """Return one to four members of any scale, of which one may say the same of all turns."""
    members, turns, compared = (int(rng.integers(low, high)) for low, high in ((1, 5), (1, 9), (2, 12)))
    scale = np.exp(rng.normal(size=(members, 1)))
    shift = 3 * rng.normal(size=(members, 1))
    scores = shift + scale * rng.normal(size=(members, turns))
    known = shift + scale * rng.normal(size=(members, compared))
    if members > 1 and rng.random() < 0.3:
        known[0] = known[0, 0]
    return Told(scores.tolist(), known.tolist())


def paid(module: ModuleType, case: Told) -> list[float]:
    """Return the reward of each turn."""
    return module.ensemble_rewards(case.scores, case.compared)


def paid_plainly(case: Told) -> list[float]:
    """Return the same, one turn after the other."""

    def mean_of(turn: int, numbers: list[list[float]]) -> float:
        parts: list[float] = []
        for own, known in zip(numbers, case.compared, strict=True):
            parts.append((own[turn] - fmean(known)) / pstdev(known) if len(set(known)) > 1 else 0.0)
        return sum(parts) / len(parts)

    spread = pstdev([mean_of(k, case.compared) for k in range(len(case.compared[0]))])
    by = spread if spread > 1e-6 else 1.0  # two members of two turns may say the opposite
    return [mean_of(k, case.scores) / by for k in range(len(case.scores[0]))]


def draw_differences(rng: Rng) -> list[list[float]]:
    """Return differences by two to five members of two to nine candidates."""
    return (3 * rng.normal(size=(int(rng.integers(2, 6)), int(rng.integers(2, 10))))).tolist()


def asked(module: ModuleType, case: list[list[float]]) -> list[float]:
    """Return the order in which candidates are asked for."""
    return [float(place) for place in module.by_dispute(case)]


def asked_plainly(case: list[list[float]]) -> list[float]:
    """Return the same by taking the candidate of the largest variance again and again."""
    left = {k: pvariance([1 / (1 + exp(-own[k])) for own in case]) for k in range(len(case[0]))}
    found: list[float] = []
    while left:
        best = max(left, key=lambda k: left[k])
        found.append(float(best))
        del left[best]
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("ensembles.rewards", "eval.reward_model", ("ensemble_rewards",), draw_told, paid, paid_plainly),
    Formula("ensembles.queries", "eval.reward_model", ("by_dispute",), draw_differences, asked, asked_plainly),
)  # fmt: skip
