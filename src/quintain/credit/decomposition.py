"""R ≈ Σ_k c_k: a return divided over the turns that earned it, by a predictor learned from outcomes alone.

Return decomposition (RUDDER, arXiv 1806.07857) and the progress estimator of SPA-RL (2505.20732). With V(o) the
outcome to be expected of the state before a turn, discounted by γ for every turn that is left, and A(o, a) what an
action adds to it, a turn contributes what is expected after it less what was expected before,
c_k = γ·V(o_{k+1}) - V(o_k) + A(o_k, a_k); of the last turn only A is known. All are then scaled by the factor, and
moved by the constant, with which they sum to the outcomes best. V and A are ridge regressions on hashed features of
tokens: what is seen, was met so far and repeats, and what is done about it. `quintain.credit.progress` makes
contributions sum to the outcome exactly. Unit: trajectory, its outcome. Singleton rule: one episode is evidence like
any other; none predicts 0. Only outcomes are learned from, turn rewards are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quintain.credit.layout import outcome_of
from quintain.types import Group, Trajectory, Turn, derive_seed

WINDOW = 24
"""Last tokens of an observation that are looked at."""
GOAL = 40
"""Last tokens of the first prompt, in which the task is told."""
MAX_EPISODES = 512
"""Newest episodes that are learned from."""
ITERATIONS = 12
"""Steps of conjugate gradients of a fit, each of which begins where the last one ended."""
Vector = NDArray[np.float64]
Keys = list[list[object]]
"""Features of a turn in groups, each of which weighs the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A sparse matrix [rows, size]: ``Rows(places=array([3, 7]), weights=array([1., 1.]), counts=array([2]))``."""

    places: NDArray[np.int64]
    weights: Vector
    counts: NDArray[np.int64]
    """numbers that are not 0 in each row; at least one"""

    def times(self, vector: Vector) -> Vector:
        """Return the product with `vector` [size], [rows]."""
        starts = np.cumsum(self.counts) - self.counts
        return np.add.reduceat(vector[self.places] * self.weights, starts)

    def multiply_transposed(self, vector: Vector, size: int) -> Vector:
        """Return the product of the transposed matrix with `vector` [rows], [size]."""
        found = np.bincount(self.places, self.weights * np.repeat(vector, self.counts), minlength=size)
        return found.astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of an episode: ``Evidence(states=rows, actions=rows, outcome=1.0)``."""

    states: Rows
    actions: Rows
    outcome: float


class Contributions:
    """A predictor of what a turn contributes: ``estimator.update(groups)``, then ``estimator.predict(trajectory)``."""

    def __init__(
        self,
        size: int = 4096,
        *,
        ridge: float = 10.0,
        discount: float = 0.95,
        most: int = MAX_EPISODES,
        seed: int = 0,
    ) -> None:
        """Start knowing nothing: every contribution is 0.

        `size` features, `ridge` against overfitting, `discount` is γ per turn; the newest `most` episodes are learned
        from.
        """
        self.size, self.ridge, self.discount, self.most, self.seed = size, ridge, discount, most, seed
        self._seen: list[Evidence] = []
        self._values, self._gains = np.zeros(size), np.zeros(size)
        self._mean, self._scale, self._shift = 0.0, 0.0, 0.0
        self._places: dict[object, int] = {}
        self._described: dict[object, tuple[Rows, Rows]] = {}

    def update(self, groups: Sequence[Group]) -> None:
        """Learn from the scored trajectories of `groups`."""
        fresh = [self._evidence(t) for group in groups for t in group.scored]
        if not fresh:
            return
        self._seen = (self._seen + fresh)[-self.most :]
        self._described.clear()
        states, actions = _stack([e.states for e in self._seen]), _stack([e.actions for e in self._seen])
        counts = np.array([len(e.states.counts) for e in self._seen])
        outcomes = np.array([e.outcome for e in self._seen])
        left = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(counts.sum())
        targets = np.repeat(outcomes, counts) * self.discount**left
        self._mean = float(targets.mean())
        self._values = self._fit(states, targets - self._mean, self._values)
        self._gains = self._fit(actions, targets - self._mean - states.times(self._values), self._gains)
        sums = np.array([self._raw(e).sum() for e in self._seen])
        self._scale, self._shift = _calibrate(sums, counts.astype(np.float64), outcomes)

    def predict(self, trajectory: Trajectory) -> list[float]:
        """Return what each turn of `trajectory` is predicted to contribute, in units of its outcome."""
        if not trajectory.turns:
            return []
        return (self._scale * self._raw(self._evidence(trajectory)) + self._shift).tolist()

    def error(self, trajectory: Trajectory) -> float:
        """Return |Σ_k c_k - R|: by how much the predicted contributions miss the outcome."""
        return abs(sum(self.predict(trajectory)) - outcome_of(trajectory))

    def _raw(self, evidence: Evidence) -> Vector:
        """Return the contributions [turns] before they are made to fit the sums."""
        values = self._mean + evidence.states.times(self._values)
        found = evidence.actions.times(self._gains)
        found[:-1] += self.discount * values[1:] - values[:-1]
        return found

    def _fit(self, rows: Rows, targets: Vector, start: Vector) -> Vector:
        """Return weights [size] that minimise |rows·w - targets|² + ridge·|w|², by conjugate gradients."""

        def apply(vector: Vector) -> Vector:
            return rows.multiply_transposed(rows.times(vector), self.size) + self.ridge * vector

        weights = start
        residual = rows.multiply_transposed(targets, self.size) - apply(weights)
        direction, length = residual, float(residual @ residual)
        for _ in range(ITERATIONS):
            if length < 1e-18:
                break
            image = apply(direction)
            step = length / float(direction @ image)
            weights = weights + step * direction
            residual = residual - step * image
            before, length = length, float(residual @ residual)
            direction = residual + length / before * direction
        return weights

    def _evidence(self, trajectory: Trajectory) -> Evidence:
        """Return features and outcome of `trajectory`; it is described once to be predicted of and learned from."""
        key = tuple((turn.prompt_ids, turn.completion.token_ids, turn.is_valid) for turn in trajectory.turns)
        if key not in self._described:
            if len(self._described) >= self.most:
                self._described.clear()
            states, actions, fresh = describe_turns(trajectory.turns)
            self._described[key] = self._rows(states, fresh), self._rows(actions, [[] for _ in actions])
        seen, done = self._described[key]
        return Evidence(states=seen, actions=done, outcome=outcome_of(trajectory))

    def _rows(self, turns: Sequence[Keys], fresh: Sequence[Sequence[object]]) -> Rows:
        """Return the features of `turns` where they are hashed to; each group of keys has length 1.

        One more group of a turn are all keys that were `fresh` up to it.
        """
        places: list[int] = []
        weights: list[float] = []
        counts: list[int] = []
        met: list[int] = []
        for groups, new in zip(turns, fresh, strict=True):
            met += map(self._place, new)
            hashed = [*([self._place(key) for key in group] for group in groups), met]
            for group in hashed:
                places += group
                weights += [1 / max(len(group), 1) ** 0.5] * len(group)
            counts.append(sum(map(len, hashed)))
        return Rows(
            places=np.array(places, np.int64), weights=np.array(weights), counts=np.array(counts, np.int64)
        )

    def _place(self, key: object) -> int:
        """Return the feature that `key` is hashed to, the same in every process."""
        if key not in self._places:
            self._places[key] = derive_seed("feature", self.seed, repr(key)) % self.size
        return self._places[key]


class EarlierSteps:
    """Lets an estimator learn from the episodes of earlier steps only: ``EarlierSteps(Contributions())``.

    What is told of a step is learned when the next one comes, so that nothing is predicted of an episode that was
    learned from.
    """

    def __init__(self, estimator: Contributions) -> None:
        self.estimator = estimator
        self._waiting: Sequence[Group] = ()

    def update(self, groups: Sequence[Group]) -> None:
        """Learn from the groups of the step before, and keep `groups` for the next."""
        self.estimator.update(self._waiting)
        self._waiting = groups


def describe_turns(turns: Sequence[Turn]) -> tuple[list[Keys], list[Keys], list[list[object]]]:
    """Return what the state before each of `turns` is described by, what its action is, and what was first met there.

    A state: its tokens, their pairs, whether it is new and how many there were, and words of the goal that are seen;
    and, for all of the turns so far together, which pairs of tokens were met. An action: what it is, whether it could
    be carried out, that with each pair that is seen, whether it was taken before, and which of its words stand in the
    goal. Of the first turn's prompt only the end is looked at: its instructions say nothing.
    """
    states: list[Keys] = []
    actions: list[Keys] = []
    fresh: list[list[object]] = []
    met: set[tuple[int, int]] = set()
    shown: set[tuple[int, ...]] = set()
    taken: set[tuple[int, ...]] = set()
    goal = frozenset(turns[0].prompt_ids[-GOAL:]) if turns else frozenset[int]()
    for number, turn in enumerate(turns):
        seen, action = turn.prompt_ids[-WINDOW:], turn.completion.token_ids
        whole = turn.prompt_ids if number else seen
        is_new, is_again = whole not in shown, action in taken
        shown.add(whole)
        taken.add(action)
        pairs = list(dict.fromkeys(pairwise(seen)))
        new = [pair for pair in dict.fromkeys(pairwise(whole)) if pair not in met]
        met.update(new)
        fresh.append([("met", pair) for pair in new])
        hits = [token for token in dict.fromkeys(whole) if number and token in goal]
        states.append(
            [
                [("seen", token) for token in dict.fromkeys(seen)],
                [("pair", pair) for pair in pairs],
                [("new", is_new)],
                [("states", len(shown))],
                [("goal", token) for token in hits],
            ]
        )
        actions.append(
            [
                [("action", action), ("valid", turn.is_valid)],
                [("both", action, pair) for pair in pairs],
                [("again", is_again), ("again", is_again, is_new)],
                [("named", token in goal, place) for place, token in enumerate(action)],
            ]
        )
    return states, actions, fresh


def _stack(parts: Sequence[Rows]) -> Rows:
    """Return the rows of all `parts`."""
    return Rows(
        places=np.concatenate([part.places for part in parts]),
        weights=np.concatenate([part.weights for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def _calibrate(sums: Vector, counts: Vector, outcomes: Vector) -> tuple[float, float]:
    """Return the factor, at least 0, and the constant per turn with which `sums` of contributions fit `outcomes`.

    Where there is little to go by they stay near 1 and 0.
    """
    columns = np.stack([sums, counts], axis=1)
    gram = columns.T @ columns + np.eye(2)
    scale, shift = np.linalg.solve(gram, columns.T @ outcomes + np.array([1.0, 0.0]))
    return max(float(scale), 0.0), float(shift)


def describe_turn(turn: Turn, *, is_first: bool) -> list[object]:
    """Return what a turn is described by alone: its action, its validity, and the pairs of tokens it answers.

    Of the first turn's prompt only the end is looked at, as of every other's: its instructions say nothing.
    """
    action = turn.completion.token_ids
    seen = turn.prompt_ids[-WINDOW:]
    own: list[object] = [("first", is_first), ("valid", turn.is_valid), ("action", action)]
    own += [("token", token) for token in set(action)]
    own += [("both", action, pair) for pair in dict.fromkeys(pairwise(seen))]
    return own
