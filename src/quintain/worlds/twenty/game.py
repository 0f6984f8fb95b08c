"""Twenty questions: find a hidden thing by asking what it is like, in few turns.

Families it stands for: the game of twenty questions among Paprika's (arXiv 2502.17543) and of other tests of how
language models gather information. Each task names some things, of which one is meant. The expert asks for the
property that divides what is left most evenly. The reward is 1 for naming the thing in time, else 0.
"""

import re
from typing import ClassVar

from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, derive_seed
from quintain.worlds.twenty.things import (
    KNOWN,
    PROPERTIES,
    THINGS,
    Riddle,
    describe_things,
    draw_riddle,
    fits,
)

SAID = re.compile(r"(?:is it|it is|it's)(?: an?| the)? ([a-z]+) ?[?.!]?")
"""A question or a guess: ``is it big?``, ``it is a lamp``."""
SPARE = 2
"""Turns beside those that halving takes: one for the name, one because properties do not halve exactly."""
State = tuple[Riddle, tuple[str, ...], int]


class Twenty(Environment):
    """Find the hidden thing by questions; see `instructions`."""

    name = "twenty"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "reasoning", "memory"})

    def __init__(
        self, *, things: int = 8, properties: int = 6, told: bool = False, max_turns: int = 0
    ) -> None:
        """Hide one of `things` things, which differ in `properties` properties.

        Things are what they are in all tasks, which must be known; with `told` they have other properties in every
        task, which the first observation tells. `max_turns` are questions and guesses together; 0: two more than
        it takes to halve the things until one is left.

        Raises:
            UsageError: there are not so many things or properties, or no turns.
        """
        has_properties = 1 <= properties <= len(PROPERTIES)
        most = min(2**properties, len(THINGS)) if told else len(describe_things(properties))
        if not has_properties or not 2 <= things <= most or max_turns < 0:
            limit = most if has_properties else len(KNOWN)
            raise UsageError(
                f"twenty: got things={things}, properties={properties}, max_turns={max_turns}; give 1 to "
                f"{len(PROPERTIES)} properties, 2 to {limit} things, which must differ in them, and no negative turns"
            )
        self.max_turns = max_turns or (things - 1).bit_length() + SPARE
        self._words = PROPERTIES[:properties]
        self._draw = lambda rng: draw_riddle(things, properties, rng, is_told=told)
        self._riddle = Riddle(table=((THINGS[0], ()),), hidden=THINGS[0])
        self._said: tuple[str, ...] = ()
        self._turn = 0
        self._is_told = told

    def instructions(self) -> str:
        """Return what to do, how, and in how many turns."""
        asked = "? is it ".join(self._words)
        return (
            f"Find the hidden thing in {self.max_turns} turns. Ask: is it {asked}? Or name it: it is a THING."
        )

    def reset(self, task: Task) -> str:
        """Hide a thing among others."""
        self._riddle, self._said, self._turn = split_draw(task, self._draw), (), 0
        if not self._is_told:
            return f"Things: {', '.join(self._riddle.things)}"
        return "; ".join(f"{thing}: {', '.join(words) or 'none'}" for thing, words in self._riddle.table)

    def step(self, action: Action) -> StepResult:
        """Answer a question or a guess; one that was answered before is answered again, and takes its turn."""
        self._turn += 1
        said = SAID.fullmatch(" ".join(action.text.lower().split()))
        if action.error is not None or not said:
            problem = action.error or "write is it PROPERTY? or it is a THING"
            return StepResult(observation=f"Error: {problem}", is_valid=False, is_success=False)
        word = said[1]
        if word not in (*self._words, *self._riddle.things):
            said_of = f"{word} is none of the things, and no property that is answered"
            return StepResult(observation=f"Error: {said_of}", is_valid=False, is_success=False)
        if word == self._riddle.hidden:
            return StepResult(
                observation="yes, you found it", reward=1.0, is_terminated=True, is_success=True
            )
        answer = "yes" if self._riddle.answer(word) else "no"
        if word in self._said:
            return StepResult(observation=f"{answer}, as before", is_success=False)
        self._said = (*self._said, word)
        return StepResult(observation=answer, is_success=False)

    def legal_actions(self) -> tuple[str, ...]:
        """Return all questions, and a guess of each thing."""
        questions = (f"is it {word}?" for word in self._words)
        return (*questions, *(f"it is a {thing}" for thing in self._riddle.things))

    def expert_action(self) -> Action:
        """Ask what divides the things that are left most evenly; in the last turn, or with two left, name one."""
        left = self._riddle.left(self._said)
        if len(left) <= 2 or self._turn >= self.max_turns - 1:
            return Action(text=f"it is a {next(iter(left))[0]}")

        def largest(word: str) -> int:
            num_true = sum(fits(row, word) for row in left)
            return max(num_true, len(left) - num_true)

        return Action(text=f"is it {min(self._words, key=largest)}?")

    def snapshot(self) -> State:
        """Return the riddle, what was said, and how many turns it took."""
        return self._riddle, self._said, self._turn

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._riddle, self._said, self._turn = state

    def state_key(self) -> str:
        """Return the riddle, what was said in whatever order, and how many turns it took."""
        return f"{derive_seed(repr(self._riddle))}:{sorted(self._said)}:{self._turn}"
