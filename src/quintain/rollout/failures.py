"""The failure rate of a rollout: how many failed episodes it bears.

The one rule: it is looked at while episodes come in, so that a run that cannot go well ends early.
"""

from collections.abc import Sequence

from quintain.errors import FailureRateError
from quintain.types import Failure


def check_failures(failures: Sequence[Failure], *, finished: int, total: int, most: float) -> None:
    """Raise when `failures` are more than the share `most` of `total` episodes; a single one is borne.

    Raises:
        FailureRateError: they are; it names the first of them.
    """
    if len(failures) <= max(most * total, 1 if total > 1 else 0):
        return
    first = failures[0]
    asked = f"{total} episodes" if finished == total else f"{total} episodes, stopped after {finished}"
    raise FailureRateError(
        f"{asked}: got {len(failures)} failures, more than {most:.0%}; the first, by the {first.owner} "
        f"({first.kind}): {one_line(first.message)}"
    )


def one_line(text: str) -> str:
    """Return `text` as one line."""
    return " ".join(text.split())
