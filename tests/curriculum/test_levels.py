"""Which kind of tasks next: ν, the optimist's bound, and tasks of a pool by level."""

import pytest

from quintain.curriculum.levels import learnability, level_of, levels_in, take
from quintain.types import Task


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
