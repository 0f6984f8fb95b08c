"""An episode of the evaluation split never writes: the rule, held to every store that an agent reads."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.build import make_episode, make_group, make_turn

import quintain.agents
from quintain.agents.cased import CaseMemory
from quintain.agents.experience import Experience
from quintain.agents.library import ActionLibrary
from quintain.agents.reflexion import Lessons
from quintain.types import Split, Task

TRAIN = Task(id="t/train/0", environment="t", seed=0)
EVAL = replace(TRAIN, id="t/eval/0", split="eval")
WRITING = ("add", "learn", "update")
"""What the methods are called that write into a store."""


def learn_action(task: Task) -> int:
    library = ActionLibrary()
    library.learn(task, ["def f(x): return x"], set())
    return len(library.bank)


def gain_experience(task: Task) -> int:
    known = Experience()
    known.update([make_group(make_episode(make_turn(shows="Open a lamp."), task=task))])
    return len(known)


def add_lesson(task: Task) -> int:
    return len(Lessons().add(task, "Go right.").by_task)


def keep_case(task: Task) -> int:
    cases = CaseMemory()
    cases.update([make_group(make_episode(make_turn(shows="Open a lamp."), task=task))])
    return len(cases.bank.entries)


STORES: dict[type, Callable[[Task], int]] = {
    ActionLibrary: learn_action,
    CaseMemory: keep_case,
    Experience: gain_experience,
    Lessons: add_lesson,
}
"""store → writes what an episode of a task teaches into an empty one, and returns how much it holds then"""


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("task", "num"), [(TRAIN, 1), (EVAL, 0)])
def test_a_store_learns_from_training_tasks_alone(store: type, task: Task, num: int) -> None:
    assert STORES[store](task) == num


def test_every_store_is_held_to_the_rule() -> None:
    found: set[type] = set()
    for module in pkgutil.iter_modules(quintain.agents.__path__, "quintain.agents."):
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and kind.__module__ == module.name:
                found |= {kind} if any(name in vars(kind) for name in WRITING) else set()
    assert found == set(STORES), "add the new store to STORES, and let it ask Task.is_held_out"


@pytest.mark.parametrize(("split", "is_held_out"), [("train", False), ("eval", True)])
def test_a_task_says_whether_it_is_held_out(split: Split, is_held_out: bool) -> None:
    assert replace(TRAIN, split=split).is_held_out is is_held_out


def test_a_library_that_was_used_on_a_held_out_task_is_as_it_was() -> None:
    library = ActionLibrary()
    library.learn(TRAIN, ["def f(x): return x"], set())
    before = library.bank.digest()
    library.learn(EVAL, ["print(f(2))", "def g(x): return f(x)"], set())
    assert library.bank.digest() == before, "neither a function nor a use was counted"
    library.learn(TRAIN, ["print(f(2))"], set())
    assert library.bank.entries[0].value == 1
