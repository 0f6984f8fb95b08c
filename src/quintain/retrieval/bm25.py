"""Search over texts by BM25, with the package bm25s (arXiv 2407.03618).

Texts that share no word with the query are not found, however few the others are.
"""

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from quintain.errors import MissingExtra

WORD = re.compile(r"\w+")
STOP_WORDS = frozenset({"the", "of", "is", "a", "an", "in", "and", "to"})


def terms(text: str) -> list[str]:
    """Return the words that count: ``terms("The seat of Orbit")`` is ``["seat", "orbit"]``."""
    return [word for word in WORD.findall(text.lower()) if word not in STOP_WORDS]


class BM25:
    """The words of some texts: ``BM25(("The seat of Orbit is Rome.",)).best("orbit", 1)`` is ``(0,)``."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Count the words of `texts`.

        Raises:
            MissingExtra: bm25s is not installed.
        """
        self._scores: Any = package().BM25()
        self._scores.index([terms(text) for text in texts], show_progress=False)

    def best(self, query: str, count: int) -> tuple[int, ...]:
        """Return the numbers of the at most `count` texts that fit `query`, the best first."""
        return tuple(number for number, _ in self.search(query, count))

    def search(self, query: str, count: int) -> list[tuple[int, float]]:
        """Return the numbers and scores of the at most `count` texts that fit `query`; of equal ones the first."""
        words = terms(query)
        if not words:
            return []
        scores = np.asarray(self._scores.get_scores(words), np.float64)
        return [(number, score) for number, score in highest(scores, count) if score > 0]


def highest(scores: "np.ndarray[Any, np.dtype[np.floating[Any]]]", count: int) -> list[tuple[int, float]]:
    """Return the places and values of the `count` highest of `scores` [N], highest first, of equal ones the first."""
    count = min(count, len(scores))
    if count < 1:
        return []
    least = np.partition(scores, -count)[-count]
    places = np.flatnonzero(scores >= least)
    order = places[np.argsort(-scores[places], kind="stable")][:count]
    return [(int(place), float(scores[place])) for place in order]


def package() -> Any:
    """Return the package bm25s.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        found = importlib.import_module("bm25s")
    except ImportError as error:
        raise MissingExtra.for_package("bm25s", "search", "search by BM25") from error
    tqdm.monitor_interval = 0  # it starts a thread for bars, also where none is shown
    return found
