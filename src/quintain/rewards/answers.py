"""Is it the answer? Exact match and token F1 after normalisation, the best over several gold answers.

Normalisation is SQuAD's (Rajpurkar et al., arXiv 1606.05250): lower case, without punctuation, articles and extra
space. F1 = 2PR/(P+R) over the multiset of words. An empty answer matches only an empty gold answer.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from quintain.errors import DataError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """Return `answer` as it is compared. Example: "The  Eiffel-Tower!" → "eiffeltower"."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if `answer` is one of `golds` once normalised, else 0; raises `DataError` without golds."""
    return float(normalise(answer) in [normalise(gold) for gold in _some(golds)])


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """Return the best F1 of the words of `answer` against one of `golds`, in [0, 1]."""
    return max(_f1(normalise(answer).split(), normalise(gold).split()) for gold in _some(golds))


def _some(golds: Sequence[str]) -> Sequence[str]:
    if not golds or isinstance(golds, str):
        raise DataError(f"gold answers: got {golds!r}; give a list with at least one")
    return golds


def _f1(words: Sequence[str], gold: Sequence[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    shared = (Counter(words) & Counter(gold)).total()
    return 2 * shared / (len(words) + len(gold))
