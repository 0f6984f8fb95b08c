"""Gates: which tasks and groups can still teach something, by value."""

import pytest
from tests.build import make_episode, make_turn

from quintain.curriculum import Fixed, Gated, Record, is_open, merge, records_of
from quintain.curriculum.gates import open_first
from quintain.errors import UsageError
from quintain.types import Failure, Group, Outcome, Score, Stop, Task

FAILURE = Failure(owner="environment", kind="timeout", message="too slow")


def task(name: str) -> Task:
    return Task(id=name, environment="w", seed=1)


def score(value: float) -> Score:
    return Score(value=value, is_success=value > 0)


def group(name: str, *outcomes: Outcome) -> Group:
    turn = make_turn()
    trajectories = tuple(
        make_episode(
            turn,
            task=task(name),
            outcome=outcome,
            stop=Stop.TERMINATED if isinstance(outcome, Score) else Stop.FAILURE,
            seed=place,
            group=name,
            index=place,
        )
        for place, outcome in enumerate(outcomes)
    )
    return Group(task=task(name), trajectories=trajectories)


def test_records_count_scored_episodes_only() -> None:
    groups = (group("a", score(0), score(1), FAILURE), group("a", score(1)), group("b", FAILURE))
    assert records_of(groups) == {"a": Record(num=3, num_success=2), "b": Record()}


def test_merged_records_add_up() -> None:
    first = {"a": Record(num=2, num_success=1)}
    second = {"a": Record(num=3, num_success=3), "b": Record(num=1)}
    assert merge(first, second) == {"a": Record(num=5, num_success=4), "b": Record(num=1)}
    assert first == {"a": Record(num=2, num_success=1)}


@pytest.mark.parametrize(
    ("num", "num_success", "expected"),
    [(0, 0, True), (7, 7, True), (8, 8, False), (8, 0, False), (8, 1, True), (8, 7, True)],
)
def test_a_task_closes_when_it_is_always_or_never_solved(num: int, num_success: int, expected: bool) -> None:
    assert is_open(Record(num=num, num_success=num_success)) is expected


def test_bounds_can_keep_the_unsolved_open() -> None:
    assert is_open(Record(num=8), low=-1.0)
    assert not is_open(Record(num=10, num_success=9), high=0.9)


def test_gated_takes_open_tasks_first() -> None:
    stream = Fixed([task(name) for name in "abcdefgh"])
    records = {"a": Record(num=8, num_success=8), "c": Record(num=8)}
    gated = Gated(stream, records, lookahead=2)
    assert [t.id for t in gated.draw(0, 3)] == ["b", "d", "e"]
    assert [t.id for t in gated.draw(1, 3)] == ["g", "h", "b"]
    assert gated.at(0).id == "b"


def test_gated_without_records_is_the_stream() -> None:
    stream = Fixed([task(name) for name in "abcd"])
    assert Gated(stream, {}, lookahead=1).draw(1, 2) == stream.draw(1, 2)


def test_gated_never_runs_dry() -> None:
    solved = Record(num=8, num_success=8)
    gated = Gated(Fixed([task("a"), task("b")]), {"a": solved, "b": solved}, lookahead=2)
    assert [t.id for t in gated.draw(0, 3)] == ["a", "b", "a"]


def test_lookahead_must_be_positive() -> None:
    with pytest.raises(UsageError, match="got 0"):
        Gated(Fixed([task("a")]), {}, lookahead=0)


def test_open_tasks_go_first_those_most_like_a_failure_before_others() -> None:
    worths, nearness = [0.9, 0.5, 0.0, 0.05, 0.75], [1.0, 0.2, 0.9, 0.7, 0.2]
    assert open_first(worths, nearness, (0.05, 0.75)) == [3, 1, 4, 0, 2]
    assert open_first(worths, nearness, (0.8, 0.85)) == [0, 1, 2, 3, 4], "none is open: as they come"
    assert open_first([], [], (0.0, 1.0)) == []
