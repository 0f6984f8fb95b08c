"""Is it the answer? Exact match and token F1 after normalisation, the best over several gold answers.

Normalisation is SQuAD's (Rajpurkar et al., arXiv 1606.05250): lower case, without punctuation, articles and
extra space. F1 = 2PR/(P+R) over the multiset of words.
The one rule: an empty answer matches only an empty gold answer.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from quintain.errors import DataError
from quintain.rewards.terms import Term
from quintain.types import Task, Trajectory

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Return `answer` as it is compared. Example: "The  Eiffel-Tower!" → "eiffeltower"."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if `answer` is one of `golds` once normalised, else 0; raises `DataError` without golds."""
    return float(normalised(answer) in [normalised(gold) for gold in _some(golds)])


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """Return the best F1 of the words of `answer` against one of `golds`, in [0, 1]."""
    return max(_f1(normalised(answer).split(), normalised(gold).split()) for gold in _some(golds))


def last_text(trajectory: Trajectory) -> str:
    """Return the text of the last action, "" without one."""
    return trajectory.turns[-1].action.text if trajectory.turns else ""


def correct(
    golds: Callable[[Task], Sequence[str]],
    *,
    answer: Callable[[Trajectory], str] = last_text,
    measure: Literal["exact_match", "f1"] = "exact_match",
    weight: float = 1.0,
) -> Term:
    """Return the term "correct": the last action (or what `answer` finds) against the `golds` of the task."""
    compare = exact_match if measure == "exact_match" else token_f1
    return Term(name="correct", measure=lambda t: compare(answer(t), golds(t.task)), weight=weight)


def _some(golds: Sequence[str]) -> Sequence[str]:
    if not golds or isinstance(golds, str):
        raise DataError(f"gold answers: got {golds!r}; give a list with at least one")
    return golds


def _f1(words: Sequence[str], gold: Sequence[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    shared = (Counter(words) & Counter(gold)).total()
    return 2 * shared / (len(words) + len(gold))
