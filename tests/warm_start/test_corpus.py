"""What a tiny tokenizer is trained on: whatever an environment writes must be texts."""

from dataclasses import replace
from typing import Any

import pytest

from quintain.environments.boundary import GuardedTasks
from quintain.errors import EnvironmentFault
from quintain.types import Action, StepResult, Task
from quintain.warm_start.corpus import corpus
from quintain.worlds.guess.game import Guess

ODD: tuple[Any, ...] = (b"up", None, 7)


def odd(**given: Any) -> type[Guess]:
    """Return a world that gives the value of `given` in its place."""

    class Odd(Guess):
        def task(self, split: Any, index: int) -> Task:
            task = super().task(split, index)
            return replace(task, prompt=given["prompt"]) if "prompt" in given else task

        def legal_actions(self) -> tuple[str, ...]:
            return (given.get("legal", "3"),)

        def expert_action(self) -> Action:
            return Action(text=given["expert"]) if "expert" in given else super().expert_action()

        def step(self, action: Action) -> StepResult:
            return StepResult(observation="moved", is_terminated=True)

    return Odd


def test_all_of_it_is_texts() -> None:
    assert {type(text) for text in corpus(odd(), 0)} == {str}


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("place", ["prompt", "legal", "expert"])
def test_what_is_no_text_is_a_fault_of_the_environment(place: str, value: object) -> None:
    with pytest.raises(
        EnvironmentFault, match=f"got {type(value).__name__} as the prompt of a task, a legal"
    ):
        list(corpus(odd(**{place: value}), 0))


@pytest.mark.parametrize("value", ODD)
def test_a_prompt_that_is_no_text_is_a_fault_of_the_environment(value: object) -> None:
    with pytest.raises(
        EnvironmentFault, match=f"got {type(value).__name__} as the prompt of task 3; give a text"
    ):
        GuardedTasks(odd(prompt=value)).task("train", 3)
