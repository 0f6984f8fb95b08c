"""One answer to each task of a file, scored by a function of verl, TRL, OpenRLHF or ms-swift.

``reward-function/reward.py:compute_score`` with ``--tasks gsm8k.parquet`` asks what the file asks, once, and hands what
was said to the function. Which form it has is told by the names of its parameters (`FORMS`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, cast

from quintain.environments.protocol import Environment
from quintain.environments.specs import file_member
from quintain.environments.tools import GraderFault
from quintain.errors import UsageError
from quintain.types import Action, Observation, Score, Split, StepResult, Task

Reward = Callable[..., Any]
Form = Callable[[Reward, Collection[str], Task, str], Any]
"""(function, names of its parameters, task, answer) → what the function gives"""
ANSWERS = ("ground_truth", "answer", "solution", "label", "target", "reference_answer")
"""Columns that may hold the right answer, the first one that is there."""


class Answers(Environment):
    """Answer."""

    max_turns = 1
    return_range = (float("-inf"), float("inf"))
    tags: ClassVar[frozenset[str]] = frozenset({"reasoning"})

    def __init__(self, name: str, *, success: float = 1.0) -> None:
        """Take the reward function `name`, ``FILE.py:function``; `success` is the score from which a task is solved.

        Raises:
            UsageError: there is no such function, or it has a form that is not known.
        """
        path, colon, function = name.rpartition(":")
        if not colon or not path.endswith(".py"):
            raise UsageError(
                f"environment reward-function/{name}: got no function; name it as reward-function/FILE.py:function"
            )
        found = file_member(Path(path), function, f"reward-function/{name}", "reward function")
        if inspect.isclass(found):
            found = found()
        if not callable(found):
            raise UsageError(
                f"environment reward-function/{name}: got a {type(found).__name__}; name a function, or a class "
                "that is called"
            )
        self.name, self._reward, self._success = (
            f"reward-function/{Path(path).name}:{function}",
            cast(Reward, found),
            success,
        )
        self._names = parameters_of(self._reward)
        self._form = find_form(self._names, self.name)
        self._task: Task | None = None

    def instructions(self) -> str:
        """Return no instruction: what is asked says all."""
        return ""

    def task(self, split: Split, index: int) -> Task:
        """Refuse: the tasks are those of a file.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"environment {self.name}: got no tasks; give them as a file, --tasks FILE")

    def reset(self, task: Task) -> Observation:
        """Ask what the task asks."""
        self._task = task
        return task.prompt

    def step(self, action: Action) -> StepResult:
        """Score what was said.

        Raises:
            GraderFault: the function raised, or gave no number.
        """
        assert self._task is not None, "an episode begins with reset"
        try:
            given = self._form(self._reward, self._names, self._task, action.text)
        except Exception as error:
            raise GraderFault(f"reward {self.name}: got {type(error).__name__}: {error}; mend it") from error
        score, terms = read_score(given, self.name)
        return StepResult(
            observation="",
            reward=score,
            reward_terms=terms,
            is_terminated=True,
            is_success=score >= self._success,
        )


def score_by_verl(reward: Reward, names: Collection[str], task: Task, answer: str) -> Any:
    """Return what a ``compute_score(data_source, solution_str, ground_truth, extra_info)`` of verl gives."""
    model = task.data.get("reward_model")
    known = cast("Mapping[str, Any]", model) if isinstance(model, dict) else {}
    given = {
        "data_source": task.data.get("data_source", task.environment),
        "solution_str": answer,
        "ground_truth": known.get("ground_truth", find_answer(task)),
        "extra_info": task.data.get("extra_info"),
    }
    return reward(**{name: given[name] for name in given if name in names})


def score_by_trl(reward: Reward, names: Collection[str], task: Task, answer: str) -> Any:
    """Return what a function or class of TRL or ms-swift gives: lists of completions and columns, a list of numbers.

    Where the file has messages as its prompt, prompt and completion are messages, too.
    """
    columns = {name: [value] for name, value in task.data.items()}
    messages = task.data.get("messages")
    given: dict[str, Any] = {
        "prompts": [messages or task.prompt],
        "completions": [[{"role": "assistant", "content": answer}] if messages else answer],
        "completion_ids": [[]],
        "trainer_state": None,
        **columns,
    }
    takes_all = "**" in names
    return reward(**{name: given[name] for name in given if name in names or (takes_all and name in columns)})


def score_by_openrlhf(reward: Reward, names: Collection[str], task: Task, answer: str) -> Any:
    """Return what a ``reward_func(queries, prompts, labels)`` of OpenRLHF gives; a query is prompt and answer."""
    given = {"queries": [task.prompt + answer], "prompts": [task.prompt], "labels": [find_answer(task)]}
    return reward(**{name: given[name] for name in given if name in names})


def score_by_ours(reward: Reward, _: Collection[str], task: Task, answer: str) -> Any:
    """Return what a ``grade(task, answer)`` gives."""
    return reward(task, answer)


FORMS: Mapping[str, Form] = {
    "solution_str": score_by_verl,
    "completions": score_by_trl,
    "queries": score_by_openrlhf,
    "task": score_by_ours,
}
"""Name of a parameter → the form of the function that has it."""


def find_form(names: Collection[str], name: str) -> Form:
    """Return how a function with parameters of these `names` is called.

    Raises:
        UsageError: it has none of the parameters by which a form is known.
    """
    for parameter, form in FORMS.items():
        if parameter in names:
            return form
    had = ", ".join(names) or "nothing"
    raise UsageError(
        f"environment {name}: got a function of ({had}); give one of (data_source, solution_str, ground_truth, "
        "extra_info) as in verl, (completions, **columns) as in TRL and ms-swift, (queries, prompts, labels) as in "
        "OpenRLHF, or (task, answer)"
    )


def parameters_of(reward: Reward) -> tuple[str, ...]:
    """Return the names of the parameters of `reward`; ``**`` where it takes any."""
    found = inspect.signature(reward).parameters.values()
    return tuple("**" if each.kind is each.VAR_KEYWORD else each.name for each in found)


def find_answer(task: Task) -> Any:
    """Return the right answer as a task's column has it; None where no column that is known does."""
    return next((task.data[name] for name in ANSWERS if name in task.data), None)


def read_score(given: Any, name: str) -> tuple[float, dict[str, float]]:
    """Return the score in what a reward function gave, and its other numbers by name.

    A list or tensor of one is that one; of a dictionary the number is ``score``, ``rewards`` or ``reward``.

    Raises:
        GraderFault: it is no finite number.
    """
    terms: dict[str, float] = {}
    value: Any = given.value if isinstance(given, Score) else given
    if isinstance(value, dict):
        row = cast("dict[str, Any]", value)
        key = next((each for each in ("score", "rewards", "reward") if each in row), "")
        terms = {
            each: float(row[each])
            for each in row
            if each != key and isinstance(row[each], (bool, int, float))
        }
        value = row.get(key)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)) and len(cast("list[Any]", value)) == 1:
        value = cast("list[Any]", value)[0]
    if not isinstance(value, (bool, int, float)) or not isfinite(value):
        raise GraderFault(
            f"reward {name}: got {given!r:.80}; give a finite number, a list of one, or a dictionary with score"
        )
    return float(value), terms
