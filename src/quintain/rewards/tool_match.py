"""R = 6·S/S_max - 3: how far tool calls are the ones that were wanted, field by field: ToolRL (arXiv 2504.13958).

S adds the multiset overlap of names, and for each wanted call, matched with one predicted call of its name, the
overlap of argument names and the number of equal values; S_max = 1 + Σ (1 + number of arguments). Matched is what
gives most, not what comes first. Values are compared as JSON, so 1 is neither "1" nor true.
"""

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.types import ToolCall

MAX_EXACT = 6
"""Calls of one name up to which all matchings are tried; above, the best pair is taken again and again."""


def match_score(predicted: Sequence[ToolCall], wanted: Sequence[ToolCall]) -> float:
    """Return the score in [-3, 3]; 3 for the wanted calls exactly, whatever their order; -3 for none of them.

    Example: wanted a(x=1, y=2), predicted a(x=1, y=3) → 1.5. Wanted nothing: 3 if nothing is called, else -3.
    """
    if not wanted:
        return -3.0 if predicted else 3.0
    if sorted(map(as_json, predicted)) == sorted(map(as_json, wanted)):
        return 3.0
    most = 1 + sum(1 + len(call.arguments) for call in wanted)
    names, gold = Counter(c.name for c in predicted), Counter(c.name for c in wanted)
    total = (names & gold).total() / (names | gold).total()
    for name in gold:
        scores = np.array(
            [[call_score(p, w) for p in predicted if p.name == name] for w in wanted if w.name == name]
        ).reshape(gold[name], names[name])
        total += best_matching(scores)
    return 6 * total / most - 3


def call_score(predicted: ToolCall, wanted: ToolCall) -> float:
    """Return the overlap of argument names plus the number of wanted arguments with the wanted value."""
    mine, gold = predicted.arguments, wanted.arguments
    union = mine.keys() | gold.keys()
    overlap = len(mine.keys() & gold.keys()) / len(union) if union else 1.0
    return overlap + sum(name in mine and canonical(mine[name]) == canonical(gold[name]) for name in gold)


def best_matching(scores: NDArray[np.float64]) -> float:
    """Return the largest sum of `scores` [wanted, predicted] with each call used at most once."""
    if not scores.size:
        return 0.0
    if max(scores.shape) > MAX_EXACT:
        row, column = np.unravel_index(int(scores.argmax()), scores.shape)
        rest = np.delete(np.delete(scores, row, 0), column, 1)
        return float(scores[row, column]) + best_matching(rest)
    if scores.shape[0] > scores.shape[1]:
        scores = scores.T
    rest = scores[1:]
    return max(
        float(score) + best_matching(np.delete(rest, column, 1)) for column, score in enumerate(scores[0])
    )


def canonical(value: object) -> str:
    """Return `value` as JSON text in which equal values are equal texts."""
    return json.dumps(value, sort_keys=True, default=repr)


def as_json(call: ToolCall) -> str:
    """Return `call` as a text in which equal calls are equal texts."""
    return f"{call.name} {canonical(dict(call.arguments))}"
