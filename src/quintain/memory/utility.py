"""Steps to go: f(observation, action), regressed on steps of exploration (LIET, arXiv 2506.07232).

w = arg min Σ (f - y)² over steps that led to the goal + Σ max(0, y - f)² over steps that did not + λ |w|²

A step of an episode that reached the goal came y steps before it, itself included. Of one that did not it is only known
that the goal is farther than its episode went on: that counts where f is below, and is no cost by itself (censored
regression: `ROUNDS` times least squares, with f in the place of the bound where f is above). f counts runs of up to
four words of what is seen, and of what is seen as the action names it: a word that the action says becomes its place
in it, so that ``flag 2 north`` is to `north` what ``flag 2 east`` is to `east`.

Difference to the paper: a ridge regression over hashed words, where the paper tunes a language model by LoRA.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError, UsageError
from quintain.store.files import replace_file
from quintain.types.json_text import load_json

WORD = re.compile(r"\w+|[^\w\s]")
LONGEST, ROUNDS = 4, 20
"""Words of a run, and times that censored steps are looked at again."""
PART = 256
"""Steps that are counted at once."""


class CostSample(NamedTuple):
    """A step: ``CostSample("Goal: egg.", "sink, table", "go to sink", 4)``, four steps before the goal was reached."""

    begins: str
    """what its seat saw first"""
    observation: str
    """what it saw last"""
    action: str
    steps: int
    is_censored: bool = False
    """whether the goal was not reached: then it takes more than `steps`, or at least as many"""


class StepsToGo:
    """f: ``utility = StepsToGo(); utility.fit(samples); utility.values(begins, observation, ["north", "take"])``."""

    def __init__(self, *, size: int = 2048, ridge: float = 1.0) -> None:
        """Know nothing, with `size` weights and λ = `ridge`."""
        self.size, self.ridge = size, ridge
        self.weights: NDArray[np.float64] = np.zeros(size)
        self.is_fitted = False

    def fit(self, samples: Sequence[CostSample]) -> None:
        """Learn from `samples` alone.

        Raises:
            UsageError: none of them led to the goal.
        """
        is_censored = np.array([sample.is_censored for sample in samples], np.bool_)
        if is_censored.all():
            raise UsageError(
                f"steps to go: got {len(samples)} steps of exploration, none of which led to the goal; explore more "
                "episodes, or easier tasks"
            )
        rows = [self._places(sample.begins, sample.observation, sample.action) for sample in samples]
        steps = np.array([sample.steps for sample in samples], np.float64)
        self.weights = fit_weights(rows, steps, is_censored, size=self.size, ridge=self.ridge)
        self.is_fitted = True

    def values(self, begins: str, observation: str, actions: Sequence[str]) -> list[float]:
        """Return f of each of `actions`; below 1 it is as good as there."""
        return [float(self.weights[self._places(begins, observation, action)].sum()) for action in actions]

    def save(self, path: Path) -> None:
        """Write the weights to `path`, as JSON."""
        told = {"size": self.size, "weights": [round(weight, 6) for weight in self.weights.tolist()]}
        replace_file(path, json.dumps(told).encode())

    def _places(self, begins: str, observation: str, action: str) -> NDArray[np.int64]:
        """Return where the features of `action` are among the weights, each as often as it occurs."""
        return np.array(
            [zlib.crc32(name.encode()) % self.size for name in name_features(begins, observation, action)]
        )


def fit_weights(
    rows: Sequence[NDArray[np.int64]],
    steps: NDArray[np.float64],
    is_censored: NDArray[np.bool_],
    *,
    size: int,
    ridge: float,
) -> NDArray[np.float64]:
    """Return the w [size] of samples with the features `rows`, each repeated as often as it occurs, and `steps` [N]."""
    lengths = [len(row) for row in rows]
    places, owners = np.concatenate(rows), np.repeat(np.arange(len(rows)), lengths)
    moment = ridge * np.eye(size)
    for first in range(0, len(rows), PART):
        counts = np.zeros((PART, size), np.float32)
        chosen = (owners >= first) & (owners < first + PART)
        np.add.at(counts, (owners[chosen] - first, places[chosen]), 1.0)
        moment += counts.T @ counts
    inverse = np.linalg.inv(moment)
    weights, targets = np.zeros(size), steps
    for _ in range(ROUNDS):
        weights = inverse @ np.bincount(places, np.repeat(targets, lengths), size)
        found = np.bincount(owners, weights[places], len(rows))
        targets = np.where(is_censored, np.maximum(steps, found), steps)
    return weights


def load_utility(path: Path) -> StepsToGo:
    """Return what `StepsToGo.save` wrote to `path`.

    Raises:
        DataError: there is none.
    """
    try:
        told = load_json(path.read_text(encoding="utf-8"))
        utility = StepsToGo(size=int(told["size"]))
        utility.weights = np.array(told["weights"], np.float64)
        if utility.weights.shape != (utility.size,) or not np.isfinite(utility.weights).all():
            raise ValueError(f"{utility.weights.shape} weights")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"steps to go: got {path}, which holds no weights ({error}); name another") from error
    utility.is_fitted = True
    return utility


def name_features(begins: str, observation: str, action: str) -> list[str]:
    """Return the names of the features of `action`: what it is like, what is seen, and both together."""
    words = split_words(action)
    seen = [("", observation), ("first ", begins)] if begins != observation else [("", observation)]
    known = {word for _, text in seen for word in split_words(text)}
    places: dict[str, str] = {}
    for word in words:
        if word in known:
            places.setdefault(word, f"#{len(places) + 1}")
    kind = " ".join(places.get(word, word) for word in words)
    found = ["", kind]
    for where, text in seen:
        if not where:
            found += find_runs(split_words(text))
        as_named = tuple(places.get(word, word) for word in split_words(text))
        found += [f"{where}{kind}|{run}" for run in find_runs(as_named) if "#" in run]
    return found


@lru_cache(maxsize=4096)
def split_words(text: str) -> tuple[str, ...]:
    """Return the words and signs of `text`, in lower case."""
    return tuple(WORD.findall(text.lower()))


@lru_cache(maxsize=4096)
def find_runs(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the runs of one to `LONGEST` neighbours among `words`."""
    return tuple(
        " ".join(words[place : place + num])
        for num in range(1, LONGEST + 1)
        for place in range(len(words) - num + 1)
    )
