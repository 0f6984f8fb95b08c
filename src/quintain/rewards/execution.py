"""Did it do what it should? Checks that pass, and a final state that is the right one.

Rewards of AppWorld (LOOP, arXiv 2502.01600) and of state-hash graders (tau-bench, 2406.12045). What runs code or
hashes a state is the caller's. Where nothing was checked nothing can be said, and a state that doing nothing reaches
is no achievement.
"""

from collections.abc import Hashable, Sequence

from quintain.errors import DataError


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
