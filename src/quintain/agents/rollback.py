"""Explicit rollback: a critique of each state, then back to any visited one (WebRollback, arXiv 2504.11788).

Before each step the model is asked whether the state is on a good way to the task. Where it says ``bad``, it is shown
the states that it can go back to, and names one, or none; else it acts. Going back is an action like any other, counted
and paid as the environment pays it. The branch that was left stays as a note in what is seen from then on, with what
was done there and why it was left.

States that can be gone back to are those on the way here. Where legal actions say ``back`` and ``back K``, the
environment goes back by itself, K pages as one action; else it is brought back by its snapshot, and what was paid since
is taken back as well. After what cannot be undone (`Reversible`) no state from before is offered.

Differences to the paper: critique and choice are turns in one conversation, in which what was seen on a branch that
was left stays readable, beside its note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from quintain.agents.deliberation import Deliberation, Words, describe_action, with_words
from quintain.agents.protocol import Agent, Brief, Prompt, equip
from quintain.data.searched import split_head, with_head
from quintain.environments.protocol import (
    Environment,
    Legal,
    Reversible,
    Seats,
    SimultaneousSeats,
    Snapshot,
    advance,
    environment_name,
)
from quintain.environments.states import SavedState, restore_state, save_state
from quintain.environments.wrapped import Wrapped
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation, StepResult, Task, as_text

GOOD, BAD = "good", "bad"
CRITICISE = f"Is this state on a good way to the task? Write {GOOD} or {BAD}, and in a few words why."
CHOOSE = "Which of these states do you go back to? Write its number, or none."
ACT = "Now act."
LEFT = "Left from here: "
LABEL = 80
"""Characters of what was seen in a state that name it."""
GO_BACK = re.compile(r"goto (\d+)(?:: (.*))?", re.DOTALL)
BACK = re.compile(r"back(?: (\d+))?")
NUMBER = re.compile(r"\d+")


def is_bad(critique: str) -> bool:
    """Return whether a `critique` says that a state is unpromising."""
    return critique.strip().lower().startswith(BAD)


@dataclass(frozen=True, slots=True)
class Rollback:
    """Any harness that may go back: ``Rollback(ReAct(chat), chat, max_tokens=48)``."""

    agent: Agent
    chat: Chat
    max_tokens: int = 48
    """Tokens of a critique, and of the choice of a state."""

    def open(self, brief: Brief) -> RollbackSession:
        """See `Agent.open`."""
        return RollbackSession(self, brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment`, as the harness inside needs it, in which states can be gone back to.

        Raises:
            UsageError: nobody can go back in it.
        """
        return RollbackWorld(equip(self.agent, environment))


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitedState:
    """A state on the way here: ``VisitedState(number=2, observation="lamps: …", depth=1, action="click lamps")``."""

    number: int
    observation: Observation
    depth: int
    """pages that can be gone back from here; 0 where there is none, or the environment does not go back by itself"""
    action: str = ""
    """what led here from the state before"""
    state: SavedState | None = None
    """by which it is brought back, where the environment does not go back by itself"""
    paid: float = 0.0
    """what the way here was paid"""


class RollbackWorld(Wrapped):
    """`inner`, in which ``goto 2: no lamp there`` goes back to the visited state 2, and a note says why."""

    own: ClassVar[tuple[str, ...]] = ("_way", "_left", "_number", "_goes_by_itself")

    def __init__(self, inner: Environment) -> None:
        """Let states of `inner` be gone back to.

        Raises:
            UsageError: it has no snapshots and no legal actions, or several seats act in it.
        """
        asked = f"a rollback in {environment_name(inner)}"
        if isinstance(inner, (Seats, SimultaneousSeats)) and len(inner.seats()) > 1:
            raise UsageError(f"{asked}: got an environment of several seats; take another agent")
        if not isinstance(inner, (Snapshot, Legal)):
            raise UsageError(
                f"{asked}: got an environment that cannot go back; give it snapshot() and restore(state), or the "
                "legal actions back and back NUMBER"
            )
        super().__init__(inner)
        self._way: list[VisitedState] = []
        self._left: dict[int, tuple[str, ...]] = {}
        self._number, self._goes_by_itself = 0, False

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside, in the visited state 0."""
        self._way, self._left, self._number, self._goes_by_itself = [], {}, 0, False
        observation = self.begin_inner(task)
        self._visit("", observation, 0.0)
        return observation

    def step(self, action: Action) -> StepResult:
        """Carry `action` out, or go back."""
        if match := GO_BACK.fullmatch(action.text):
            return self._go_back(int(match[1]), (match[2] or "").strip())
        result = advance(self.inner, action)
        if result.is_over:
            return result
        if match := BACK.fullmatch(action.text) if self._goes_by_itself and result.is_valid else None:
            target = self._find(self._way[-1].depth - int(match[1] or 1))
            if target is not None:
                self._leave(target, "")
        elif result.is_valid:
            self._visit(describe_action(action), result.observation, self._way[-1].paid + result.reward)
        return self._arrive(result)

    def list_offered(self) -> list[VisitedState]:
        """Return the states that can be gone back to from here, of those of one page the first."""
        *before, here = self._way
        if not self._goes_by_itself:
            return before
        first = {each.depth: each for each in reversed(before)}
        return [each for each in before if each.depth < here.depth and first[each.depth] is each]

    def write_action(self, action: Action) -> Action:
        """Return the environment's own ``back K`` as the state that it leads to."""
        match = BACK.fullmatch(action.text) if self._goes_by_itself else None
        target = None if match is None else self._find(self._way[-1].depth - int(match[1] or 1))
        return action if target is None else Action(text=f"goto {target.number}")

    def _go_back(self, number: int, why: str) -> StepResult:
        """Go back to the state `number`, which was left for the reason `why`."""
        target = next((each for each in self.list_offered() if each.number == number), None)
        if target is None:
            numbers = ", ".join(str(each.number) for each in self.list_offered()) or "none"
            said = with_words(self._way[-1].observation, f"Error: goto {number}: there are {numbers}.")
            return self._arrive(StepResult(observation=said, is_success=False, is_valid=False))
        here = self._way[-1]
        if self._goes_by_itself:
            steps = here.depth - target.depth
            result = advance(self.inner, Action(text="back" if steps == 1 else f"back {steps}"))
            if result.is_over:
                return result
        else:
            restore_state(self.inner, cast(SavedState, target.state))
            result = StepResult(
                observation=target.observation, reward=target.paid - here.paid, is_success=False
            )
        self._leave(target, why)
        return self._arrive(result)

    def _leave(self, target: VisitedState, why: str) -> None:
        """Cut the way at `target`; a note says which branch was left there, and why."""
        place = self._way.index(target)
        done = " > ".join(each.action for each in self._way[place + 1 :])
        note = f"{done}: {why}" if why else done
        self._way = self._way[: place + 1]
        if done:
            self._left = {**self._left, target.number: (*self._left.get(target.number, ()), note)}

    def _visit(self, action: str, observation: Observation, paid: float) -> None:
        """Note the state that the environment is in."""
        legal = self.inner.legal_actions() if isinstance(self.inner, Legal) else ()
        depth = sum(BACK.fullmatch(each) is not None for each in legal)
        self._goes_by_itself |= depth > 0
        can_be_restored = isinstance(self.inner, Snapshot) and not self._goes_by_itself
        self._way = [
            *self._way,
            VisitedState(
                number=self._number,
                observation=observation,
                depth=depth,
                action=action,
                state=save_state(self.inner) if can_be_restored else None,
                paid=paid,
            ),
        ]
        self._number += 1

    def _find(self, depth: int) -> VisitedState | None:
        """Return the state of so many pages, of those that can be gone back to."""
        return next((each for each in self.list_offered() if each.depth == depth), None)

    def _arrive(self, result: StepResult) -> StepResult:
        """Return `result`, with what was left here and which states can be gone back to."""
        if isinstance(self.inner, Reversible) and not self.inner.can_go_back():
            self._way = self._way[-1:]
        left = self._left.get(self._way[-1].number)
        said = with_words(result.observation, f"{LEFT}{'; '.join(left)}") if left else result.observation
        return replace(result, observation=self._show(said))

    def _show(self, observation: Observation) -> Observation:
        """Return `observation` behind the numbers of the states on offer and of this one."""
        return with_head(observation, "back", [each.number for each in (*self.list_offered(), self._way[-1])])


class RollbackSession(Deliberation):
    """An episode of `Rollback`."""

    def __init__(self, settings: Rollback, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._words = Words(settings.chat, settings.max_tokens)
        self._legal = brief.legal_actions
        self._offered: tuple[int, ...] = ()
        self._labels: dict[int, str] = {}
        self._asks, self._why = "", ""
        self._shown: Action | None = None
        """what a demonstration does from here, once that is known"""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; where a state can be gone back to, this one is criticised first."""
        _, numbers, shown = split_head(observation)
        self._legal = legal_actions or self._legal
        self._offered, self._asks, self._why, self._shown = numbers[:-1], "", "", None
        here = numbers[-1] if numbers else 0
        self._labels.setdefault(here, " ".join(as_text(shown).split())[:LABEL])
        if not self._offered:
            return super().observe(shown, legal_actions)
        self._asks = "critique"
        return self._words.ask(super().observe(with_words(shown, CRITICISE), legal_actions), self._asks)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a critique, the state that is gone back to, or an action."""
        if not self._asks:
            return self._inner_read(completion)
        self._inner_ends(completion)
        said = self._words.read(completion)
        if self._asks == "critique" and is_bad(said):
            self._asks, self._why = "choice", " ".join(said.split())
            states = [f"{number}: {self._labels[number]}" for number in self._offered]
            words = "\n".join([CHOOSE, *states])
            self._next = self._words.ask(self._inner.observe(words, self._legal), self._asks, words)
            return Action(text=said)
        number = NUMBER.search(said) if self._asks == "choice" else None
        self._asks = ""
        if number is not None and int(number[0]) in self._offered:
            return Action(text=f"goto {int(number[0])}: {self._why}")
        self._next = self._ask_action()
        return Action(text=said)

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstration finds a state bad that it goes back from, and stays with that."""
        if self._asks == "critique":
            self._shown = action
        action = self._shown or action
        match = GO_BACK.fullmatch(action.text)
        if self._asks == "critique":
            return self._words.write(GOOD if match is None else BAD)
        if self._asks == "choice":
            return self._words.write("none" if match is None else match[1])
        return self._inner.write(action)

    def _ask_action(self) -> Prompt:
        """Return the prompt that asks for an action."""
        return replace(self._inner.observe(ACT, self._legal), shows=ACT)
