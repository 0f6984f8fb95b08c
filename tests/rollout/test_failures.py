"""The failure rate of a rollout, by value, and what a run says of an environment that breaks too often."""

import pytest

from quintain.errors import FailureRateError
from quintain.rollout.failures import check_broken, check_failures
from quintain.types import Failure

BROKEN = Failure(owner="environment", kind="crash", message="it\n  fell over")
JUDGE = Failure(owner="judge", kind="grader", message="no verdict")


@pytest.mark.parametrize(
    ("broken", "attempts", "most", "is_borne"),
    [
        (0, 0, 0.01, True),
        (3, 3, 0.01, True),  # three say nothing about a rate yet
        (4, 399, 0.01, False),
        (4, 400, 0.01, True),
        (5, 400, 0.01, False),
        (1, 1000, 0.0, False),  # none at all is what was asked for
        (0, 1000, 0.0, True),
        (500, 1000, 0.5, True),
        (1000, 1000, 1.0, True),
    ],
)
def test_more_broken_attempts_than_the_share_end_a_rollout(
    broken: int, attempts: int, most: float, is_borne: bool
) -> None:
    failures = [BROKEN] + [JUDGE] * (broken - 1) if broken else []
    if is_borne:
        check_broken("guess", failures, attempts, most=most)
        return
    with pytest.raises(FailureRateError) as raised:
        check_broken("guess", failures, attempts, most=most)
    assert str(raised.value) == (
        f"environment guess: {broken} of {attempts} attempts at an episode broke, more than {most:.1%}; the first, by "
        "the environment (crash): it fell over; mend it (quintain check guess --load 16), or bear more with "
        "--most_broken"
    )


@pytest.mark.parametrize(
    ("failed", "finished", "total", "is_borne"), [(1, 2, 8, True), (2, 8, 8, False), (4, 40, 40, True)]
)
def test_more_failed_episodes_than_the_share_end_a_rollout(
    failed: int, finished: int, total: int, is_borne: bool
) -> None:
    if is_borne:
        check_failures([BROKEN] * failed, finished=finished, total=total, most=0.1)
        return
    with pytest.raises(FailureRateError, match=rf"{total} episodes: got {failed} failures, more than 10%"):
        check_failures([BROKEN] * failed, finished=finished, total=total, most=0.1)


def test_a_single_episode_that_is_all_there_is_is_not_borne() -> None:
    with pytest.raises(FailureRateError, match="1 episodes: got 1 failures"):
        check_failures([BROKEN], finished=1, total=1, most=0.1)
