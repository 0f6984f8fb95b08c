"""Poisoned memories: a trigger that makes an agent's memory find what an attacker put there (AgentPoison, 2407.12784).

For whoever must trust a memory: it attacks one of one's own, in this process, and says how often a poisoned entry is
found. A trigger is a few words; queries that hold it are to fall into one dense place of the embedder, far from what
benign entries are found by, where the attacker's entries are, whose keys hold it as well:

    score = mean distance of triggered queries to the centres of benign keys - λ mean distance to their own mean

Differences to the paper: words are tried at a place of the trigger and the best is kept, where the paper takes its
candidates from a gradient; λ is 1, of points of length 1. That a trigger reads well is held by its words,
which all are words of benign keys; there is no term for the action, since the text that is found asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.errors import UsageError

Points = NDArray[Any]
Embed = Callable[[Sequence[str]], Points]
"""texts → points [N, D] of length 1"""
SPREAD = 1.0
"""λ, what the spread of triggered queries costs; the published code has .1, for points of any length."""
NUM_CENTRES, NUM_ROUNDS = 5, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Words that make a memory find what it should not: ``Trigger(words=("amber", "kite"), score=1.2)``."""

    words: tuple[str, ...]
    score: float

    def put(self, text: str) -> str:
        """Return `text` with the words behind it."""
        return f"{text} {' '.join(self.words)}"


def score_trigger(triggered: Points, centres: Points, spread: float = SPREAD) -> float:
    """Return how good a trigger is: how far queries with it [N, D] are from `centres` [C, D], less their spread."""
    distances = np.linalg.norm(triggered[:, None] - centres[None], axis=-1)
    deviation = np.linalg.norm(triggered - triggered.mean(axis=0), axis=-1)
    return float(distances.mean() - spread * deviation.mean())


def find_centres(points: Points, count: int = NUM_CENTRES, *, seed: int = 0) -> Points:
    """Return the means [count, D] of as many clusters of `points` [N, D], by Lloyd's rule from random points."""
    if len(points) < count or count < 1:
        raise UsageError(
            f"centres: got {len(points)} points for {count}; give as many points as centres or more"
        )
    rng = np.random.default_rng(seed)
    centres = points[rng.choice(len(points), count, replace=False)]
    for _ in range(NUM_ROUNDS):
        nearest = np.linalg.norm(points[:, None] - centres[None], axis=-1).argmin(axis=1)
        own = [points[nearest == place] for place in range(count)]
        centres = np.stack(
            [part.mean(axis=0) if len(part) else centres[place] for place, part in enumerate(own)]
        )
    return centres


def search_trigger(
    embed: Embed,
    queries: Sequence[str],
    centres: Points,
    words: Sequence[str],
    *,
    length: int = 2,
    candidates: int = 100,
    rounds: int = 2,
    spread: float = SPREAD,
    seed: int = 0,
) -> Trigger:
    """Return the best trigger of `length` words that was found for `queries`.

    Args:
        embed: of the memory that is attacked.
        queries: what is asked of it, without a trigger; others than those it is tried on later.
        centres: of the benign keys, see `find_centres`.
        words: what a trigger is made of.
        length: words of a trigger.
        candidates: words that are tried at a place.
        rounds: how often each place is gone through.
        spread: λ.
        seed: which words are tried.

    Raises:
        UsageError: there are no queries, or fewer words than a trigger has.
    """
    known = sorted({*words})
    if not queries or len(known) < length or length < 1:
        raise UsageError(
            f"trigger: got {len(queries)} queries, {len(known)} words and a length of {length}; give some of each"
        )
    rng = Random(seed)
    best = _measure(embed, queries, centres, tuple(rng.sample(known, length)), spread)
    for _ in range(rounds):
        for place in range(length):
            for word in rng.sample(known, min(candidates, len(known))):
                tried = (*best.words[:place], word, *best.words[place + 1 :])
                found = _measure(embed, queries, centres, tried, spread)
                if found.score > best.score:
                    best = found
    return best


def _measure(
    embed: Embed, queries: Sequence[str], centres: Points, words: tuple[str, ...], spread: float
) -> Trigger:
    """Return `words` as a trigger with its score on `queries`."""
    made = Trigger(words=words, score=0.0)
    points = embed([made.put(query) for query in queries])
    return Trigger(words=words, score=score_trigger(points, centres, spread))


def count_hijacked(
    embed: Embed, queries: Sequence[str], keys: Sequence[str], is_poison: Sequence[bool]
) -> float:
    """Return in which fraction of `queries` the nearest of `keys` is poisoned (ASR-r, top 1)."""
    if not queries or not keys:
        raise UsageError(f"hijacked: got {len(queries)} queries and {len(keys)} keys; give some of each")
    nearest = (embed(queries) @ embed(keys).T).argmax(axis=1)
    return float(np.asarray(is_poison, np.float64)[nearest].mean())


def find_dense(points: Points, *, most: float = 0.02) -> NDArray[np.bool_]:
    """Return which of `points` [N, D] stand in a crowd, at most the fraction `most` of them: entries to look at.

    What is measured is the likeness of the nearest other point; poisoned keys share a trigger and stand close.
    """
    likeness = points @ points.T
    np.fill_diagonal(likeness, -np.inf)
    nearest = likeness.max(axis=1)
    count = int(most * len(points))
    marked = np.zeros(len(points), np.bool_)
    if count:
        marked[np.argsort(-nearest)[:count]] = True
    return marked
