"""A value model of texts, and what it learns from trees of episodes: how near each state is to a solution."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.search.episodes import path_of, share_solved, trees_of
from quintain.search.tree import Seen, Value, process_values
from quintain.types import Group

WORD = re.compile(r"\w+|[^\w\s]")
SIZE = 2048
"""Features that texts are hashed to."""
RARE = 4
"""Most times that a sign stands in a picture of which the place counts."""


def targets_of(tree: Group) -> list[tuple[Seen, float]]:
    """Return the value that the episodes of a tree imply of each of its states."""
    return process_values([path_of(trajectory) for trajectory in tree.scored])


def measure_trees(groups: Sequence[Group], value: Value) -> Mapping[str, float]:
    """Return how many trees hold a solution, how many values they imply, and how far `value` is from these.

    To judge what a search went by, `value` is what the model said before it learned from these trees.
    """
    trees = trees_of(groups)
    targets = [target for tree in trees for target in targets_of(tree)]
    errors = [abs(value(seen.text) - implied) for seen, implied in targets]
    return {
        "mcts/solved": share_solved(trees),
        "mcts/targets": float(len(targets)),
        "mcts/value_error": sum(errors) / max(len(errors), 1),
    }


class TextValue:
    """A value model that reads what is seen: ridge regression on words and pairs of neighbours.

    In a text of several lines, a picture, signs that stand in few places count by place, and two by how they lie.

    A text that nothing was learned of is worth 0. What it knows is a fold over recorded groups.
    """

    def __init__(self, *, size: int = SIZE, ridge: float = 1.0) -> None:
        self._moment = ridge * np.eye(size)
        self._cross = np.zeros(size)
        self._weights = self._older = np.zeros(size)

    def update(self, groups: Sequence[Group]) -> None:
        """Learn from the trees of a round."""
        self.learn([(seen.text, value) for tree in trees_of(groups) for seen, value in targets_of(tree)])

    def learn(self, samples: Sequence[tuple[str, float]]) -> None:
        """Take in texts with their values, beside all that came before."""
        self._older = self._weights
        if not samples:
            return
        rows = np.stack([self.features(text) for text, _ in samples])
        self._moment += rows.T @ rows
        self._cross += rows.T @ np.array([value for _, value in samples])
        self._weights = np.linalg.solve(self._moment, self._cross)

    def __call__(self, text: str) -> float:
        """Return the value of `text`, from 0 to 1."""
        return self._under(self._weights, text)

    def before(self, text: str) -> float:
        """Return the value that `text` had before what was learned last."""
        return self._under(self._older, text)

    def _under(self, weights: NDArray[np.floating[Any]], text: str) -> float:
        return float(np.clip(self.features(text) @ weights, 0.0, 1.0))

    def features(self, text: str) -> NDArray[np.float64]:
        """Return how often each feature occurs in `text`, [size], the first of them always once."""
        words = WORD.findall(text.lower())
        named = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
        lines = text.splitlines()
        if len(lines) > 1:
            signs = [(sign, x, y) for y, line in enumerate(lines) for x, sign in enumerate(line)]
            often = Counter(sign for sign, _, _ in signs)
            rare = [found for found in signs if often[found[0]] <= RARE]
            named += [f"{sign} {x},{y}" for sign, x, y in rare]
            named += [f"{a}{b} {x - u},{y - v}" for (a, u, v), (b, x, y) in combinations(rare, 2)]
        found = np.zeros(len(self._cross))
        found[0] = 1.0
        for name in named:
            found[1 + zlib.crc32(name.encode()) % (len(found) - 1)] += 1.0
        return found
