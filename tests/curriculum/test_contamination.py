"""Held-out tasks never reach a training step, under whatever name they come."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from quintain.curriculum.contamination import HeldOutTasks, content_of
from quintain.errors import DataError
from quintain.types import Task

HELD_OUT = [
    Task(id=f"sums/eval/{n}", environment="sums", seed=n, split="eval", data={"row": n}) for n in range(5)
]
FRESH = [
    Task(id=f"sums/train/{n}", environment="sums", seed=100 + n, data={"row": 100 + n}) for n in range(5)
]


def test_tasks_of_their_own_pass() -> None:
    HeldOutTasks(HELD_OUT).check(FRESH)
    HeldOutTasks(HELD_OUT).check([])


def test_planted_tasks_are_found_under_other_names() -> None:
    planted = [replace(task, id=f"sums/train/{n}", split="train") for n, task in enumerate(HELD_OUT)]
    with pytest.raises(DataError, match=r"got 5 of 10 that are, the first 'sums/train/0'"):
        HeldOutTasks(HELD_OUT).check([*FRESH, *planted])
    for task in planted:
        with pytest.raises(DataError, match="got 1 of 1"):
            HeldOutTasks(HELD_OUT).check([task])


def test_a_task_of_the_evaluation_split_is_found_even_if_it_is_not_asked_now() -> None:
    with pytest.raises(DataError, match="got 1 of 1"):
        HeldOutTasks([]).check([replace(FRESH[0], split="eval")])


def test_content_is_what_a_task_is_and_not_what_it_is_called() -> None:
    task = FRESH[0]
    assert content_of(replace(task, id="x", tags=frozenset({"planning"}))) == content_of(task)
    others = [
        replace(task, seed=7),
        replace(task, prompt="Add."),
        replace(task, data={"row": 7}),
        replace(task, environment="house"),
    ]
    assert len({content_of(each) for each in [task, *others]}) == 5


def test_data_need_not_be_plain() -> None:
    frozen = replace(FRESH[0], data=MappingProxyType({"row": 100, "more": {1}}))
    assert content_of(frozen) == content_of(replace(FRESH[0], data={"more": {1}, "row": 100}))
