"""A state comes back as it was, or it is said that it did not."""

from typing import Any

import pytest

from quintain.environments.protocol import Environment, advance, begin
from quintain.environments.states import restore_state, save_state
from quintain.errors import EnvironmentFault
from quintain.types import Action, StepResult, Task


class Pile(Environment):
    """Put on. Act: a word."""

    name = "pile"
    max_turns = 4

    def __init__(self) -> None:
        self.words: list[str] = []

    def reset(self, task: Task) -> str:
        self.words = []
        return "Nothing."

    def step(self, action: Action) -> StepResult:
        self.words.append(action.text)
        return StepResult(observation=" ".join(self.words))

    def snapshot(self) -> Any:
        return list(self.words)

    def restore(self, state: Any) -> None:
        self.words = list(state)

    def state_key(self) -> str:
        return " ".join(self.words)


class Alias(Pile):
    """Put on. Act: a word."""

    def snapshot(self) -> Any:
        return self.words


class Keeps(Pile):
    """Put on. Act: a word."""

    def restore(self, state: Any) -> None:
        pass


class Full(Pile):
    """Put on. Act: a word."""

    def snapshot(self) -> Any:
        raise MemoryError


def begin_pile(kind: type[Pile]) -> Pile:
    pile = kind()
    begin(pile, Task(id="t", environment="pile", seed=0))
    advance(pile, Action(text="a"))
    return pile


def test_what_was_kept_comes_back() -> None:
    pile = begin_pile(Pile)
    saved = save_state(pile)
    advance(pile, Action(text="b"))
    restore_state(pile, saved)
    assert pile.words == ["a"] and saved.key == "a" and saved.state == ["a"]


@pytest.mark.parametrize("kind", [Alias, Keeps])
def test_a_snapshot_that_lies_is_a_fault_of_the_environment(kind: type[Pile]) -> None:
    pile = begin_pile(kind)
    saved = save_state(pile)
    advance(pile, Action(text="b"))
    with pytest.raises(
        EnvironmentFault, match=r"that pile was to bring back: got 'a b', not 'a'; let snapshot\(\)"
    ):
        restore_state(pile, saved)


def test_a_state_that_memory_has_no_room_for_is_a_fault_of_the_environment() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"pile was to keep: got no memory .* \(steps=, nodes=, size=\)"
    ):
        save_state(begin_pile(Full))
