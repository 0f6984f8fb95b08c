"""Streams of tasks: numbers, proportions and disjointness, by value."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.curriculum import Curriculum, Fixed, TaskMixture, TaskStream, draw_held_out
from quintain.errors import UsageError
from quintain.types import Split, Task


class Source:
    """Names its tasks and nothing else."""

    def __init__(self, name: str = "w") -> None:
        self.name = name

    def task(self, split: Split, index: int) -> Task:
        return Task(id=f"{self.name}/{split}/{index}", environment=self.name, seed=index, split=split)


def ids(tasks: tuple[Task, ...]) -> list[str]:
    return [task.id for task in tasks]


def test_uniform_draws_the_tasks_numbered_from_step_times_count() -> None:
    stream = TaskStream(Source)
    assert ids(stream.draw(0, 3)) == ["w/train/0", "w/train/1", "w/train/2"]
    assert ids(stream.draw(2, 3)) == ["w/train/6", "w/train/7", "w/train/8"]


def test_uniform_is_the_same_whatever_was_drawn_before() -> None:
    used = TaskStream(Source)
    for step in range(5):
        used.draw(step, 4)
    assert used.draw(5, 4) == TaskStream(Source).draw(5, 4)


def test_uniform_over_a_finite_pool_visits_every_task_once_a_pass() -> None:
    stream = TaskStream(Source, num_tasks=5)
    first = [stream.at(n).seed for n in range(5)]
    second = [stream.at(n).seed for n in range(5, 10)]
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert first != second


def test_held_out_tasks_are_of_the_evaluation_split() -> None:
    assert ids(draw_held_out(Source, 2)) == ["w/eval/0", "w/eval/1"]


def test_fixed_goes_round_in_order() -> None:
    stream = Fixed(draw_held_out(Source, 3))
    assert [task.seed for task in stream.draw(1, 4)] == [1, 2, 0, 1]


def test_fixed_shuffled_gives_each_task_once_a_pass() -> None:
    stream = Fixed(draw_held_out(Source, 6), shuffle=True)
    passes = [[stream.at(6 * n + place).seed for place in range(6)] for n in range(4)]
    assert all(sorted(seeds) == list(range(6)) for seeds in passes)
    assert len({tuple(seeds) for seeds in passes}) > 1


def test_mixture_of_three_to_one_by_hand() -> None:
    stream = TaskMixture(((TaskStream(lambda: Source("a")), 3.0), (TaskStream(lambda: Source("b")), 1.0)))
    # floor(n * 3/4 + 1/2) for n = 0..8: 0 1 2 2 3 4 5 5 6
    assert "".join(task.environment for task in stream.draw(0, 8)) == "aabaaaba"
    assert [task.seed for task in stream.draw(0, 8)] == [0, 1, 0, 2, 3, 4, 1, 5]
    assert stream.draw(0, 8) == (*stream.draw(0, 4), *stream.draw(1, 4))


def test_mixture_of_one_is_that_stream() -> None:
    assert TaskMixture(((TaskStream(Source), 0.2),)).draw(3, 5) == TaskStream(Source).draw(3, 5)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 10_000))
def test_mixture_counts_follow_the_weights(weights: list[int], num: int) -> None:
    stream = TaskMixture([(TaskStream(Source), float(weight)) for weight in weights])
    counts = stream.counts(num)
    assert sum(counts) == num
    most = max(1, len(weights) - 1) / 2
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - num * weight / sum(weights)) <= most + 1e-9
    grown = [after - before for before, after in zip(counts, stream.counts(num + 1), strict=True)]
    assert sorted(grown) == [0] * (len(weights) - 1) + [1]


def test_mixture_has_no_gaps_and_no_repeats() -> None:
    parts = [
        (TaskStream(lambda name=name: Source(name)), weight)
        for name, weight in (("a", 0.5), ("b", 0.3), ("c", 0.2))
    ]
    drawn = TaskMixture(parts).draw(0, 100)
    assert Counter(task.environment for task in drawn) == {"a": 50, "b": 30, "c": 20}
    for name in "abc":
        seeds = [task.seed for task in drawn if task.environment == name]
        assert seeds == list(range(len(seeds)))


@pytest.mark.parametrize(("step", "count"), [(-1, 4), (0, 0)])
def test_a_draw_that_makes_no_sense_is_refused(step: int, count: int) -> None:
    with pytest.raises(UsageError, match=f"got step {step} and count {count}"):
        TaskStream(Source).draw(step, count)


def test_empty_sets_and_bad_weights_are_refused() -> None:
    with pytest.raises(UsageError, match="got 0"):
        Fixed(())
    with pytest.raises(UsageError, match="got 0"):
        TaskMixture(())
    with pytest.raises(UsageError, match=r"num_tasks .* got 0"):
        TaskStream(Source, num_tasks=0)
    with pytest.raises(UsageError, match=r"positive: got \[1.0, 0.0\]"):
        TaskMixture(((TaskStream(Source), 1.0), (TaskStream(Source), 0.0)))


def test_a_curriculum_without_tasks_says_what_to_define() -> None:
    with pytest.raises(NotImplementedError, match="must define at"):
        Curriculum().draw(0, 1)
