"""-log σ(r⁺ - r⁻) + λ r²: a verifier of single answers, learned from pairs of right and wrong ones (Bradley-Terry).

The verifier of muCode (arXiv 2502.20380), which scores what one turn says in its state; there a language model, here
linear in hashed features of the turn's tokens, refitted by gradient descent from zero whenever it has seen more.
Unit: pair of turns. Singleton rule: an answer without a counterpart teaches nothing. A pair is of one task, so that
tasks which are easy do not look like answers that are good.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.credit.decomposition import describe_turn
from quintain.types import Group, Trajectory, Turn, derive_seed

MAX_PAIRS = 4096
"""Newest pairs that are learned from."""


class Verifier:
    """Scores turns: ``verifier.update(groups)``, then ``verifier.score(turn)``; higher is more likely right."""

    def __init__(
        self,
        is_right: Callable[[Trajectory, int], bool | None],
        *,
        size: int = 256,
        penalty: float = 0.01,
        rounds: int = 50,
    ) -> None:
        """`is_right`(trajectory, turn number) labels what was seen, None what is no answer; `penalty` is λ."""
        self.is_right, self.size, self.penalty, self.rounds = is_right, size, penalty, rounds
        self._differences: list[NDArray[np.float64]] = []
        self._weights = np.zeros(size)
        self._places: dict[object, int] = {}

    def update(self, groups: Sequence[Group]) -> None:
        """Make a pair of every wrong answer with a right one of its task, and fit anew."""
        for group in groups:
            labelled = [(t.turns[k], self.is_right(t, k)) for t in group.scored for k in range(len(t.turns))]
            right = [self.features(turn) for turn, label in labelled if label]
            wrong = [self.features(turn) for turn, label in labelled if label is False]
            self._differences += [
                right[place % len(right)] - other for place, other in enumerate(wrong) if right
            ]
        self._differences = self._differences[-MAX_PAIRS:]
        if self._differences:
            self._weights = fit(np.stack(self._differences), self.penalty, self.rounds)

    def score(self, turn: Turn) -> float:
        """Return r of `turn`; 0 while nothing was learned."""
        return float(self.features(turn) @ self._weights)

    def features(self, turn: Turn) -> NDArray[np.float64]:
        """Return the features of `turn`, [size]."""
        row = np.zeros(self.size)
        for key in describe_turn(turn, is_first=False):
            if key not in self._places:
                self._places[key] = derive_seed("verifier", repr(key)) % self.size
            row[self._places[key]] += 1.0
        return row / max(float(np.linalg.norm(row)), 1e-9)


def fit(
    differences: NDArray[np.float64], penalty: float, rounds: int, rate: float = 1.0
) -> NDArray[np.float64]:
    """Return weights that minimise mean -log σ(w·d) + `penalty` |w|² over the rows d of `differences`, by descent."""
    weights = np.zeros(differences.shape[1])
    for _ in range(rounds):
        chance = 1 / (1 + np.exp(differences @ weights))
        gradient = -(differences * chance[:, None]).mean(axis=0) + 2 * penalty * weights
        weights -= rate * gradient
    return weights
