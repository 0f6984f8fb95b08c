"""Which kind of tasks next: ν, the optimist's bound, what changes most, and tasks of a pool by level."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.build import make_episode, make_group, make_turn

from quintain.curriculum.levels import Progress, learnability, level_of, levels_in, take
from quintain.types import Failure, Group, Score, Task


def tasks(*levels: str) -> list[Task]:
    return [Task(id=f"{place}", environment=level, seed=place) for place, level in enumerate(levels)]


@pytest.mark.parametrize(
    ("outcomes", "nu"),
    [
        ([1, 0, 0, 1], 1.0),
        ([1, 1, 1, 1], 0.0),
        ([0.5, 0.4, 0.6, 0.5], 0.141421),
        ([0, 0, 0], 0.0),
        ([1] + [0] * 49, 7.0),
    ],
)
def test_what_is_learnable(outcomes: list[float], nu: float) -> None:
    assert learnability(outcomes) == pytest.approx(nu, abs=1e-6)


def test_tasks_of_a_pool_are_taken_once() -> None:
    pool = tasks("a", "b", "a", "c")
    assert levels_in(pool) == ["a", "b", "c"] and level_of(pool[1]) == "b"
    assert [task.id for task in take(pool, ["a", "a", "a", "c"])] == ["0", "2", "3"]


def make_played(level: str, *solved: bool) -> Group:
    """Episodes of a task of `level`, which pay 100 where they are solved."""
    task = Task(id="t", environment=level, seed=0)
    outcomes = [Score(value=100.0 * own, is_success=own) for own in solved]
    episodes = [
        replace(make_episode(make_turn((1,)), group="g", index=i), task=task, outcome=outcome)
        for i, outcome in enumerate(outcomes)
    ]
    return replace(make_group(*episodes), task=task)


def test_levels_are_drawn_as_fast_as_success_on_them_changes() -> None:
    """Rising by .5, falling by 1, standing still: 1/3, 2/3 and 0 of the three quarters that are not drawn evenly."""
    chooser = Progress(window=2, floor=0.25)
    names = ["falls", "new", "rises", "stands"]
    chooser.update([make_played("falls", True, True)] * 2 + [make_played("falls", False, False)] * 2)
    chooser.update([make_played("rises", False, False)] * 2 + [make_played("rises", True, False)] * 2)
    chooser.update([make_played("stands", True, False)] * 4)
    assert (
        chooser.change("falls") == 1.0 and chooser.change("rises") == 0.5 and chooser.change("stands") == 0.0
    )
    assert chooser.chances(["falls", "rises", "stands"]) == pytest.approx(
        [0.5 + 0.25 / 3, 0.25 + 0.25 / 3, 0.25 / 3]
    )
    assert chooser.change("new") == 1.0, "of which nothing is known"
    drawn = Counter(chooser.choose(names, 1000, seed=3))
    assert drawn["falls"] > drawn["rises"] > drawn["stands"] > 30
    assert chooser.choose(names, 9, seed=3) == chooser.choose(names, 9, seed=3)


def test_progress_forgets_what_is_older_than_two_windows_and_counts_no_broken_task() -> None:
    chooser = Progress(window=1, floor=0.0)
    chooser.update(
        [make_played("a", True), make_played("a", False), make_played("b", True), make_played("b", True)]
    )
    assert chooser.chances(["a", "b"]) == [1.0, 0.0]
    (episode,) = make_played("a", True).trajectories
    broken = replace(episode, outcome=Failure(owner="engine", kind="k", message="m"))
    chooser.update([replace(make_group(broken), task=episode.task)])
    assert chooser.found["a"] == [1.0, 0.0]
    chooser.update([make_played("a", False)])
    assert chooser.found["a"] == [0.0, 0.0] and chooser.chances(["a", "b"]) == [0.5, 0.5]
