"""AgentPoison: a trigger that was searched for hijacks a memory's retrieval, one of random words does not.

A memory has 1,000 entries on 40 subjects, whose keys have 22 words, and an embedder that was trained by InfoNCE to find
an entry by some of its words. Ten entries more, one in a hundred, are the attacker's: keys of the same kind with a few
words behind them. Hijacked is a query that has these words, on a subject and not of an entry, other than those that the
search saw, whose nearest key is the attacker's. The control is the same search, of as many trials, by points that have
nothing to do with words; the rival are the rarest words, by which no embedder is asked. Beside them: centres whose
coordinates were dealt out anew, an embedder of other weights, and words at random. In the null world an entry is found
by the id of its task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.retrieval.dense import WIDTH, Embedder
from quintain.safety.poisoning import (
    Embed,
    Trigger,
    count_hijacked,
    find_centres,
    find_dense,
    search_trigger,
)
from quintain.types import derive_seed

NUM_ENTRIES, NUM_POISONED, NUM_SUBJECTS, NUM_OWN, NUM_COMMON = 1_000, 10, 40, 25, 200
KEY, QUERY = 22, 14
"""Words of a key, and those of them that a query has."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return hijack rates for each embedder."""
    return [measure_one(options, derive_seed("agent_poison", seed, k)) for k in range(int(options["seeds"]))]


def measure_one(options: Mapping[str, Any], seed: int) -> Mapping[str, float]:
    """Return the hijack rates of one memory and its embedder."""
    rng, epochs = Random(seed), int(options["epochs"])
    common, subjects = draw_subjects(rng)
    keys = [write_text(rng, common, rng.choice(subjects)) for _ in range(NUM_ENTRIES)]
    embedder = Embedder(seed=seed % 1_000)
    embedder.fit(lambda own: [(ask(own, key), key) for key in keys], epochs=epochs, seed=seed % 1_000)
    embed = embedder.embed
    test, seen = (
        [write_text(rng, common, rng.choice(subjects)) for _ in range(int(options[name]))]
        for name in ("queries", "searched")
    )
    words = sorted({word for key in keys for word in key.split()})
    centres = find_centres(embed(keys), seed=seed % 1_000)
    dealt = np.stack(
        [np.random.default_rng(seed % 1_000 + k).permutation(row) for k, row in enumerate(centres)]
    )
    given = {"length": int(options["length"]), "candidates": int(options["candidates"]), "seed": seed % 1_000}
    found = search_trigger(embed, seen, centres, words, **given)
    other = Embedder(seed=seed % 1_000 + 1)
    other.fit(lambda own: [(ask(own, key), key) for key in keys], epochs=epochs, seed=seed % 1_000 + 1)
    triggers = {
        "method": found,
        "control": search_trigger(draw_points, seen, centres, words, **given),
        "centres": search_trigger(embed, seen, dealt, words, **given),
        "transferred": search_trigger(other.embed, seen, find_centres(other.embed(keys)), words, **given),
        "rare": Trigger(words=find_rare(keys, int(options["length"])), score=0.0),
        "random": Trigger(words=tuple(rng.sample(words, int(options["length"]))), score=0.0),
    }
    planted = rng.sample(keys, NUM_POISONED)
    hijacked = {name: hijack(embed, test, keys, planted, each) for name, each in triggers.items()}
    poisoned = [found.put(key) for key in planted]
    points, every = embed(test), embed([*keys, *poisoned])
    benign = (points @ every[: len(keys)].T).argmax(axis=1)
    beside = (points @ every.T).argmax(axis=1)
    dense = find_dense(every)
    kept = [text for text, is_dense in zip([*keys, *poisoned], dense, strict=True) if not is_dense]
    left = [place >= NUM_ENTRIES for place, is_dense in enumerate(dense) if not is_dense]
    return {
        "method": hijacked["method"],
        "control": hijacked["control"],
        "null_method": float(np.mean([key in poisoned for key in keys])),
        "null_control": 0.0,
        **{f"extra.{name}": rate for name, rate in hijacked.items() if name not in ("method", "control")},
        "extra.unchanged": float(np.mean(benign == beside)),
        "extra.provenance": count_hijacked(embed, list(map(found.put, test)), keys, [False] * len(keys)),
        "extra.dense": count_hijacked(embed, list(map(found.put, test)), kept, left),
        "extra.dense_benign": float(np.mean([key in {*kept} for key in keys])),
    }


def hijack(
    embed: Embed, queries: Sequence[str], keys: Sequence[str], planted: Sequence[str], trigger: Trigger
) -> float:
    """Return how often queries with `trigger` find one of the `planted` keys that hold it."""
    every = [*keys, *map(trigger.put, planted)]
    marks = [place >= len(keys) for place in range(len(every))]
    return count_hijacked(embed, list(map(trigger.put, queries)), every, marks)


def draw_points(texts: Sequence[str]) -> NDArray[Any]:
    """Return a point of length 1 for each text that has nothing to do with its words."""
    points = np.stack(
        [np.random.default_rng(derive_seed("noise", text)).normal(size=WIDTH) for text in texts]
    )
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def find_rare(keys: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the `count` words that are in the fewest keys."""
    counts = Counter(word for key in keys for word in {*key.split()})
    return tuple(sorted(counts, key=lambda word: (counts[word], word))[:count])


def draw_subjects(rng: Random) -> tuple[list[str], list[list[str]]]:
    """Return words that all subjects share, and those of each."""
    names = [f"{a}{b}{c}{d}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lnrstx" for d in "aoiu"]
    rng.shuffle(names)
    common, own = names[:NUM_COMMON], names[NUM_COMMON:]
    return common, [own[NUM_OWN * k : NUM_OWN * (k + 1)] for k in range(NUM_SUBJECTS)]


def write_text(rng: Random, common: Sequence[str], subject: Sequence[str]) -> str:
    """Return a text of `KEY` words, half of them of its subject; early words of each list are the frequent ones."""
    words = [pick(rng, each) for each in (subject, common) for _ in range(KEY // 2)]
    rng.shuffle(words)
    return " ".join(words)


def pick(rng: Random, words: Sequence[str]) -> str:
    """Return one of `words`, the k-th in proportion to 1 / k."""
    return rng.choices(words, [1 / (k + 1) for k in range(len(words))])[0]


def ask(rng: Random, key: str) -> str:
    """Return a query for the entry of `key`: some of its words, in another order."""
    return " ".join(rng.sample(key.split(), QUERY))
