"""R ≈ Σ_k c(o_k, a_k): a return divided over the turns that earned it, by a predictor learned from outcomes alone.

Return decomposition (RUDDER, arXiv 1806.07857; random return decomposition, 2111.13485) and the progress estimator of
SPA-RL (2505.20732): c is fitted so that the contributions of an episode *sum* to its outcome. Here c is linear in
hashed features of the turn (its observation's tokens, its own tokens, and both together), which makes the fit ridge
regression on sums of features: exact, in any order, and a fold over episodes. `quintain.credit.progress` then makes
contributions sum to the outcome exactly. Unit: trajectory, its outcome. Singleton rule: one episode is evidence like
any other; none predicts 0. Only outcomes are learned from, turn rewards are not read.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quintain.credit.layout import outcome_of
from quintain.types import Group, Trajectory, Turn, derive_seed

WINDOW = 24
"""Last tokens of an observation that are looked at."""


class Contributions:
    """A predictor of what a turn contributes: ``estimator.update(groups)``, then ``estimator.predict(trajectory)``."""

    def __init__(self, size: int = 256, *, ridge: float = 1.0, memory: float = 1.0, seed: int = 0) -> None:
        """Start knowing nothing: every contribution is 0.

        `size` features, `ridge` (λ) against overfitting; `memory` is what earlier evidence keeps of its weight when
        new episodes are seen (1: all of it).
        """
        self.size, self.ridge, self.memory, self.seed = size, ridge, memory, seed
        self._gram = np.zeros((size, size))
        self._moment = np.zeros(size)
        self._weights = np.zeros(size)
        self._places: dict[object, int] = {}

    def update(self, groups: Sequence[Group]) -> None:
        """Learn from the scored trajectories of `groups`."""
        rows = [(self.features(t), outcome_of(t)) for group in groups for t in group.scored]
        if not rows:
            return
        sums = np.array([features.sum(axis=0) for features, _ in rows])
        outcomes = np.array([outcome for _, outcome in rows])
        self._gram = self.memory * self._gram + sums.T @ sums
        self._moment = self.memory * self._moment + sums.T @ outcomes
        self._weights = np.linalg.solve(self._gram + self.ridge * np.eye(self.size), self._moment)

    def predict(self, trajectory: Trajectory) -> list[float]:
        """Return what each turn of `trajectory` is predicted to contribute, in units of its outcome."""
        return (self.features(trajectory) @ self._weights).tolist() if trajectory.turns else []

    def error(self, trajectory: Trajectory) -> float:
        """Return |Σ_k c_k - R|: by how much the predicted contributions miss the outcome."""
        return abs(sum(self.predict(trajectory)) - outcome_of(trajectory))

    def features(self, trajectory: Trajectory) -> NDArray[np.float64]:
        """Return one row of features for each turn, [turns, size]; the first turn is marked as such."""
        rows = np.zeros((len(trajectory.turns), self.size))
        for number, turn in enumerate(trajectory.turns):
            places = [self._place(key) for key in describe_turn(turn, is_first=number == 0)]
            np.add.at(rows[number], places, 1 / len(places) ** 0.5)
        return rows

    def _place(self, key: object) -> int:
        """Return the feature that `key` is hashed to, the same in every process."""
        if key not in self._places:
            self._places[key] = derive_seed("feature", self.seed, repr(key)) % self.size
        return self._places[key]


def describe_turn(turn: Turn, *, is_first: bool) -> list[object]:
    """Return what a turn is described by: its action, its validity, tokens of its observation, and the pairs.

    Of the first turn's prompt only the end is looked at, as of every other's: its instructions say nothing.
    """
    action = turn.completion.token_ids
    seen = turn.prompt_ids[-WINDOW:]
    own: list[object] = [("first", is_first), ("valid", turn.is_valid), ("action", action)]
    own += [("token", token) for token in set(action)]
    own += [("both", action, pair) for pair in dict.fromkeys(pairwise(seen))]
    return own
