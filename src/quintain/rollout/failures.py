"""The failure rate of a rollout: how many failed episodes, and attempts at one, it bears.

It is looked at while episodes come in, so that a run that cannot go well ends early.
"""

from collections.abc import Sequence

from quintain.errors import FailureRateError
from quintain.types import Failure

INFRASTRUCTURE = ("environment", "tool", "judge")
"""Owners of failures that a user can mend in the environment."""
STALE = "stale"
"""Kind of the failure of an episode whose weights have moved on too far: it is counted, and nothing is broken."""
FEW = 3
"""Broken attempts that say nothing about a rate yet."""


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


def check_broken(
    source: str, broken: Sequence[Failure], attempts: int, *, most: float, test: str = ""
) -> None:
    """Raise when environment, tools or judge broke more than the share `most` of all `attempts`; three are borne.

    An attempt that broke is tried again, so this is seen before episodes are lost. `source` is what episodes come
    from, and `test` a command that tries it.

    Raises:
        FailureRateError: they did; it names the first.
    """
    if len(broken) <= max(most * attempts, FEW if most else 0):
        return
    first = broken[0]
    raise FailureRateError(
        f"{source}: {len(broken)} of {attempts} attempts at an episode broke, more than {most:.1%}; the "
        f"first, by the {first.owner} ({first.kind}): {one_line(first.message)}; mend it"
        f"{test and f' ({test})'}, or bear more with --max-broken"
    )


def one_line(text: str) -> str:
    """Return `text` as one line."""
    return " ".join(text.split())
