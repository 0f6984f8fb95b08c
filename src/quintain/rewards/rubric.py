"""A rubric: items with a weight each, penalties among them, and how far two judges agree about them.

score = Σ weights of the items that hold / Σ positive weights (AgentIF-OneDay, arXiv 2601.20613). A penalty is an item
of negative weight that holds where something was done that must not be. Whether a score below 0 counts as 0 changes who
is better than whom, so it is said and not assumed. An item that nobody could judge is no point and no zero: there is no
score then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.errors import DataError


def score_rubric(weights: Mapping[str, float], held: Mapping[str, bool], *, is_floored: bool) -> float:
    """Return the score of the items that `held`, at most 1; at least 0 where it `is_floored`.

    Raises:
        DataError: an item was not judged, or none has a positive weight.
    """
    if missing := sorted(weights.keys() - held.keys()):
        raise DataError(f"rubric: got no verdict on {', '.join(missing)}; judge every item, or give no score")
    positive = sum(weight for weight in weights.values() if weight > 0)
    if not positive:
        raise DataError("rubric: got no item of positive weight; give one that can be earned")
    value = sum(weight for name, weight in weights.items() if held[name]) / positive
    return max(0.0, value) if is_floored else value


def find_failed(weights: Mapping[str, float], held: Mapping[str, bool]) -> tuple[str, ...]:
    """Return what took from the score: items of positive weight that do not hold, and penalties that do."""
    return tuple(name for name, weight in weights.items() if held[name] != (weight > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of two judges: the share of equal verdicts, and κ, that beyond chance: ``Agreement(accuracy=0.7, kappa=0.4)``."""

    accuracy: float
    kappa: float
    """(accuracy - chance) / (1 - chance), chance by each one's own share of yes; 1 where both always say the same"""


def agree(first: Sequence[bool], second: Sequence[bool]) -> Agreement:
    """Return how far two judges agree on the same items (Cohen's κ).

    Raises:
        DataError: they did not judge the same number of items, or none.
    """
    if not first or len(first) != len(second):
        raise DataError(
            f"agreement: got {len(first)} and {len(second)} verdicts; give both on the same items"
        )
    num = len(first)
    accuracy = sum(a == b for a, b in zip(first, second, strict=True)) / num
    yes, other = sum(first) / num, sum(second) / num
    chance = yes * other + (1 - yes) * (1 - other)
    return Agreement(accuracy=accuracy, kappa=1.0 if chance == 1 else (accuracy - chance) / (1 - chance))
