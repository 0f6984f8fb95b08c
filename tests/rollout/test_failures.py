"""The failure rate of a rollout, by value, and what a run says of an environment that breaks too often."""

import pytest

from quintain.agents.harness import PlainText
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.errors import FailureRateError
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.failures import check_broken, check_failures
from quintain.text.chat import Chat
from quintain.types import Action, Failure, Score, StepResult, Task

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
        check_broken("environment guess", failures, attempts, most=most)
        return
    with pytest.raises(FailureRateError) as raised:
        check_broken(
            "environment guess", failures, attempts, most=most, test="quintain check guess --load 16"
        )
    assert str(raised.value) == (
        f"environment guess: {broken} of {attempts} attempts at an episode broke, more than {most:.1%}; the first, by "
        "the environment (crash): it fell over; mend it (quintain check guess --load 16), or bear more with "
        "--max-broken"
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


class Flaky(Environment):
    """Go."""

    resets = 0

    def reset(self, task: Task) -> str:
        """Break every fourth time, whoever asks."""
        Flaky.resets += 1
        if Flaky.resets % 4 == 0:
            raise OSError("the disk is gone")
        return "A wall."

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="A wall.", reward=1.0, is_terminated=True)


@pytest.mark.parametrize("most", [0.01, 0.3])
def test_a_rollout_bears_no_more_broken_attempts_although_each_is_made_good(chat: Chat, most: float) -> None:
    Flaky.resets = 0
    engine = Scripted(lambda request, stream: chat.write("left"))
    limits = Limits(attempts=2, max_broken_share=most, concurrency=4)
    rollout = Rollout(PlainText(chat), Flaky, engine, limits=limits)
    tasks = [Flaky().task("train", index) for index in range(40)]
    if most == 0.3:
        groups = rollout.groups(tasks, size=1, seed=0)
        assert all(isinstance(each.trajectories[0].outcome, Score) for each in groups)
        assert rollout.pool.num_attempts == 40 + len(rollout.pool.broken) and len(rollout.pool.broken) >= 10
        return
    with pytest.raises(
        FailureRateError, match=r"environment Flaky: 4 of \d+ attempts at an episode broke, more than 1"
    ):
        rollout.groups(tasks, size=1, seed=0)
    assert Flaky.resets < 40, "it is seen before all episodes are played"
