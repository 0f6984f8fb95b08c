"""Did it do what it should? Checks that pass, and a final state that is the right one.

Rewards of AppWorld (LOOP, arXiv 2502.01600) and of state-hash graders (tau-bench, 2406.12045). What runs code or
hashes a state is the caller's. Where nothing was checked nothing can be said, and a state that doing nothing reaches
is no achievement.
"""

import re
from collections.abc import Hashable, Mapping, Sequence

from quintain.errors import DataError

GROUPED = re.compile(r"(?<=\d),(?=\d{3}\b)")
"""A comma that groups the digits of a number."""
WORD = re.compile(r"[^\W_]+(?:[.:'/-][^\W_]+)*")


def share_passed(results: Sequence[bool]) -> float:
    """Return the share of checks that passed. Example: (True, False, True, True) → .75.

    Raises:
        DataError: there are no results.
    """
    if not results:
        raise DataError(
            "results of checks: got none; check at least one thing, or record a failure of the judge"
        )
    return sum(map(bool, results)) / len(results)


def state_reached(now: Hashable, *, goal: Hashable, start: Hashable) -> bool:
    """Return whether `now` is the `goal`, and something had to be done for that; hashes of states, or states."""
    return start != goal == now


def basis_reward(checks: Mapping[str, bool]) -> float:
    """Return the product over what a task is judged by (τ²-bench, arXiv 2506.07982): 1 if all of it holds, else 0.

    Example: {"database": True, "outputs": False} → 0.

    Raises:
        DataError: nothing was checked; the published code pays 1 there.
    """
    if not checks:
        raise DataError("basis of a reward: got no check; judge at least one thing, or leave the task out")
    return 1.0 if all(checks.values()) else 0.0


def is_stated(output: str, texts: Sequence[str]) -> bool:
    """Return whether one of `texts` says `output`, as whole words: "10" is not in "100" (in the published code it is).

    Case and commas within numbers do not count, and neither does a currency sign: 1,000 is 1000, 54.0 is 54.
    """
    wanted = _words(output)
    width = len(wanted)
    said = [_words(text) for text in texts]
    return width > 0 and any(
        words[place : place + width] == wanted for words in said for place in range(len(words) - width + 1)
    )


def _words(text: str) -> list[str]:
    """Return the words of `text`, numbers in one form."""
    found = WORD.findall(GROUPED.sub("", text.lower()))
    return [re.sub(r"(\.\d*?)0+$", r"\1", word).rstrip(".") if "." in word else word for word in found]
