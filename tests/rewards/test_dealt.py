"""Rewards that are dealt out anew: the same ones in each group, to whom chance will have it."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from quintain.credit.group import group_relative
from quintain.rewards.dealt import dealt_out
from quintain.types import Failure, Group, Score, Task, Trajectory, Turn

MakeTurn = Callable[..., Turn]
Make = Callable[..., Trajectory]


def group(turn: MakeTurn, episode: Make, rewards: list[float], task: str = "t") -> Group:
    played = [
        replace(
            episode([turn(), turn(reward=reward)], outcome=Score(value=reward, is_success=reward == 1)),
            index=index, task=Task(id=task, environment="e", seed=0), group=task,
        )
        for index, reward in enumerate(rewards)
    ]  # fmt: skip
    return Group(task=played[0].task, trajectories=tuple(played))


def values(given: Group) -> list[float]:
    return [each.outcome.value for each in given.trajectories if isinstance(each.outcome, Score)]


def test_each_group_pays_what_it_paid_and_who_solved_it_did(turn: MakeTurn, episode: Make) -> None:
    given = [group(turn, episode, [1, 0, 0, 0.5, 0, 0, 0, 1], task) for task in ("a", "b")]
    made = dealt_out(given, seed=3)
    for before, after in zip(given, made, strict=True):
        assert sorted(values(after)) == sorted(values(before))
        for old, new in zip(before.trajectories, after.trajectories, strict=True):
            assert isinstance(old.outcome, Score) and isinstance(new.outcome, Score)
            assert new.outcome.is_success == old.outcome.is_success
            assert [each.reward for each in new.turns] == [0, new.outcome.value]
            assert new.turns[-1].reward_terms["dealt_out"] == new.outcome.value
    assert values(made[0]) != values(given[0]) or values(made[1]) != values(given[1])
    assert list(map(values, dealt_out(given, seed=3))) == list(map(values, made)), "always in the same way"
    assert any(values(dealt_out(given, seed=other)[0]) != values(made[0]) for other in range(9))


def test_what_failed_is_dealt_nothing(turn: MakeTurn, episode: Make) -> None:
    given = group(turn, episode, [1, 0, 0])
    failed = replace(given.trajectories[1], outcome=Failure(owner="tool", kind="k", message="m"))
    (made,) = dealt_out(
        [replace(given, trajectories=(given.trajectories[0], failed, given.trajectories[2]))], seed=0
    )
    assert sorted(values(made)) == [0, 1] and made.trajectories[1] == failed


def test_advantages_keep_their_sizes_and_say_nothing_of_what_was_done(turn: MakeTurn, episode: Make) -> None:
    """The mean advantage of the episode that was paid is 0 over many deals."""
    given = [group(turn, episode, [1, 0, 0, 0], str(task)) for task in range(400)]
    right = group_relative(given).advantages
    dealt = group_relative(dealt_out(given, seed=0)).advantages
    first = [float(each[0][0]) for each in dealt[::4]]
    assert {round(float(each[0][0]), 4) for each in dealt} == {round(float(each[0][0]), 4) for each in right}
    assert float(right[0][0][0]) > 1 and abs(fmean(first)) < 0.2
