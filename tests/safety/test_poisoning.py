"""Triggers of memories: the score by hand, a search that finds what it should, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quintain.errors import UsageError
from quintain.safety.poisoning import (
    Trigger,
    count_hijacked,
    find_centres,
    find_dense,
    score_trigger,
    search_trigger,
)

PLACES = {"a": (1.0, 0.0, 0.0), "b": (0.0, 1.0, 0.0), "x": (0.0, 0.0, 3.0), "y": (0.3, 0.3, 0.0)}


def embed(texts: Sequence[str]) -> NDArray[Any]:
    """Mean of the words' places, of length 1."""
    points = np.array([np.mean([PLACES[word] for word in text.split()], axis=0) for text in texts])
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_the_score_is_distance_to_the_centres_less_the_spread() -> None:
    triggered, centres = np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([[0.0, 0.0], [2.0, 0.0]])
    assert score_trigger(triggered, centres, 0.1) == pytest.approx(2.1883, abs=1e-4)
    assert score_trigger(triggered, centres, 0.0) == pytest.approx(2.2883, abs=1e-4)
    assert score_trigger(triggered[:1], centres, 9.0) == pytest.approx(2**0.5)


def test_the_word_that_pulls_every_query_away_is_found_and_hijacks() -> None:
    queries, keys = ["a", "b", "a b"], ["a", "b", "a a b"]
    found = search_trigger(embed, queries, find_centres(embed(keys), 2), [*PLACES], length=1, seed=3)
    assert found.words == ("x",)
    poisoned = [*keys, found.put("y")]
    marks = [False, False, False, True]
    assert count_hijacked(embed, [found.put(query) for query in queries], poisoned, marks) == 1.0
    assert count_hijacked(embed, queries, poisoned, marks) == 0.0
    weak = Trigger(words=("y",), score=0.0)
    assert count_hijacked(embed, [weak.put(query) for query in queries], [*keys, weak.put("x")], marks) == 0.0


def test_more_rounds_find_no_worse_and_a_seed_the_same() -> None:
    def search(rounds: int) -> Trigger:
        centres = find_centres(embed(["a", "b"]), 1)
        return search_trigger(
            embed, ["a", "b"], centres, [*PLACES], length=2, candidates=1, rounds=rounds, seed=1
        )

    assert search(1) == search(1) and search(4).score >= search(1).score


def test_centres_are_means_of_clusters() -> None:
    points = np.array([[0.0, 0.0], [0.0, 2.0], [9.0, 0.0], [9.0, 2.0]])
    assert sorted(map(tuple, find_centres(points, 2, seed=1).tolist())) in (
        [(0.0, 1.0), (9.0, 1.0)],
        [(4.5, 0.0), (4.5, 2.0)],
    )


def test_a_crowd_is_marked_and_no_more_than_was_allowed() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(98, 16))
    crowd = rng.normal(size=16) * 3 + rng.normal(size=(2, 16)) * 0.01
    every = np.concatenate([points, crowd])
    every /= np.linalg.norm(every, axis=1, keepdims=True)
    assert np.flatnonzero(find_dense(every, most=0.02)).tolist() == [98, 99]
    assert not find_dense(every, most=0.001).any()


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(UsageError, match="got 0 queries"):
        search_trigger(embed, [], np.zeros((1, 3)), ["a"])
    with pytest.raises(UsageError, match="a length of 9"):
        search_trigger(embed, ["a"], np.zeros((1, 3)), ["a"], length=9)
    with pytest.raises(UsageError, match="got 2 points for 3"):
        find_centres(np.zeros((2, 3)), 3)
    with pytest.raises(UsageError, match="got 1 queries and 0 keys"):
        count_hijacked(embed, ["a"], [], [])
