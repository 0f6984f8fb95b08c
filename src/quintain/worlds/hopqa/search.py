"""Search over paragraphs by BM25, with the package bm25s (arXiv 2407.03618).

Paragraphs that share no word with the query are not found, however few the others are.
"""

import importlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tqdm.auto import tqdm

from quintain.errors import MissingExtra

WORD = re.compile(r"\w+")
STOP_WORDS = frozenset({"the", "of", "is", "a", "an", "in", "and", "to"})


def terms(text: str) -> list[str]:
    """Return the words that count: ``terms("The seat of Orbit")`` is ``["seat", "orbit"]``."""
    return [word for word in WORD.findall(text.lower()) if word not in STOP_WORDS]


class Index:
    """The words of some paragraphs: ``Index(("The seat of Orbit is Rome.",)).best("orbit", 1)`` is ``(0,)``."""

    def __init__(self, paragraphs: Sequence[str]) -> None:
        """Count the words of `paragraphs`.

        Raises:
            MissingExtra: bm25s is not installed.
        """
        self._scores: Any = package().BM25()
        self._scores.index([terms(paragraph) for paragraph in paragraphs], show_progress=False)

    def best(self, query: str, count: int) -> tuple[int, ...]:
        """Return the numbers of the at most `count` paragraphs that fit `query`, the best first."""
        words = terms(query)
        if not words:
            return ()
        scores = [float(score) for score in self._scores.get_scores(words)]
        order = sorted(range(len(scores)), key=lambda number: -scores[number])
        return tuple(number for number in order[:count] if scores[number] > 0)


def package() -> Any:
    """Return the package bm25s.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        found = importlib.import_module("bm25s")
    except ImportError as error:
        raise MissingExtra.named("bm25s", "search", "the search of hopqa") from error
    tqdm.monitor_interval = 0  # it starts a thread for bars, also where none is shown
    return found


@lru_cache(maxsize=256)
def index_of(titles: tuple[str, ...], paragraphs: tuple[str, ...]) -> Index:
    """Return the index of `paragraphs` with their `titles`, made once."""
    return Index([f"{title} {text}" for title, text in zip(titles, paragraphs, strict=True)])
