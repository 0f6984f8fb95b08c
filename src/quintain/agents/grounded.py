"""Two who act on a screen: a planner who says what to do, and a grounder who says where that is (AutoGLM, 2411.00820).

The planner sees the task and what happened so far, and says ``do(click, save)``: an action and a thing in words. The
grounder is shown the screen and these words, and answers with what points at the thing, ``12 40``. It never sees the
task: each question is a conversation of its own. What is not pointed at, such as ``do(type, oslo)``, is done at once.

Both are seats of one environment (`GroundedWorld`), so each may be a policy of its own, learns from its own turns, and
can be replaced without the other: by the environment's expert, too, to find out who is to blame for a failure.

Differences to the paper: its grounder sees pixels; here both read text, and the interface is one line.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, cast

from quintain.agents.deliberation import Deliberation
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief, Prompt
from quintain.agents.seated import SeatedWorld
from quintain.environments.protocol import (
    Described,
    Environment,
    Expert,
    Snapshot,
    StateKey,
    environment_name,
    join_results,
)
from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, as_text

if TYPE_CHECKING:
    from quintain.types import Observation, Task

PLANNER, GROUNDER = "planner", "grounder"
POINTED = "click"
"""The action that is followed by what points at a thing."""
SCREEN, FIND = "Screen: ", "Find: "
"""What a question to the grounder begins with, and what stands before the thing in it."""
PLANNER_INSTRUCTION = "You plan, another points. Say do(ACTION, THING), as do(click, NAME) or do(type, TEXT)."
GROUNDER_INSTRUCTION = "Say what points at the thing."
FORM = re.compile(r"\s*do\(\s*(\w+)\s*,\s*(\S.*?)\s*\)\s*", re.DOTALL)
Player = Literal["policy", "expert"]


class Do(NamedTuple):
    """What the planner says: ``Do("click", "save")``."""

    action: str
    thing: str


def read_do(text: str) -> Do:
    """Return what the planner says in `text`; the reverse of `write_do`.

    Raises:
        DataError: it is not of the form ``do(ACTION, THING)``.
    """
    found = FORM.fullmatch(text)
    if found is None:
        raise DataError(f"a plan: got {text.strip()[:60]!r}; write do(ACTION, THING), as do({POINTED}, NAME)")
    return Do(found[1], found[2])


def write_do(do: Do) -> str:
    """Return `do` as the planner writes it: ``do(click, save)``."""
    return f"do({do.action}, {do.thing})"


def in_words(action: Action) -> str:
    """Return `action` as one line: its text, or the name of its call and the values that it is given."""
    if not action.tool_calls:
        return action.text
    call = action.tool_calls[0]
    return " ".join((call.name, *map(str, call.arguments.values())))


@dataclass(frozen=True, slots=True)
class Grounded:
    """A planner and a grounder: ``Grounded(chat)``; ``Grounded(chat, grounder="expert")`` has one that never misses."""

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 64
    planner: Player = "policy"
    """Who plans: the policy, or the environment's expert."""
    grounder: Player = "policy"
    """Who points: the policy, or who knows where everything is."""

    def __post_init__(self) -> None:
        """Refuse a play without players."""
        if self.planner == self.grounder == "expert":
            raise UsageError(
                "grounded: got an expert as planner and as grounder; let the policy play one of them"
            )

    def open(self, brief: Brief) -> GroundedSession:
        """See `Agent.open`."""
        return GroundedSession(PlainText(self.chat, self.temperature, self.max_tokens), brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`."""
        players = {PLANNER: self.planner, GROUNDER: self.grounder}
        experts = frozenset(seat for seat, player in players.items() if player == "expert")
        return GroundedWorld(environment, experts=experts)


class GroundedSession(Deliberation):
    """The conversation of a seat: the planner's goes on, the grounder begins anew with every question."""

    _points: bool | None = None
    """whether the seat is the grounder's, which its first observation says"""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        if self._points is None:
            self._points = as_text(observation).startswith(SCREEN)
        if self._points:
            bare = replace(self._brief.task, prompt="")
            self._inner = self._agent.open(replace(self._brief, task=bare, instructions=GROUNDER_INSTRUCTION))
        return super().observe(observation, legal_actions)


class GroundedWorld(SeatedWorld):
    """`inner`, in which one says what to do and another where: ``GroundedWorld(Screen(interface="text"))``."""

    own: ClassVar[tuple[str, ...]] = ("_thing", "_num_done", "_early")

    def __init__(self, inner: Environment, *, experts: frozenset[str] = frozenset()) -> None:
        """Let both act in `inner`; the seats `experts` are played by those who know.

        Raises:
            UsageError: `inner` cannot tell its screen from its task, or has no expert where one is to plan.
        """
        if (
            not isinstance(inner, Described)
            or not isinstance(inner, Snapshot)
            or not isinstance(inner, StateKey)
        ):
            raise UsageError(
                f"a planner and a grounder: got {environment_name(inner)}, which cannot show its screen without its "
                "task; define screen and elements, or take the environment screen"
            )
        super().__init__(inner)
        self._experts, self._thing = experts, ""
        self._early: list[StepResult] = []

    def count_turns(self) -> int:
        """Return the turns of both."""
        return 2 * self.inner.max_turns

    def seats(self) -> tuple[str, ...]:
        """Return who is played."""
        return tuple(seat for seat in (PLANNER, GROUNDER) if seat not in self._experts)

    def seat(self) -> str:
        """Return the grounder where something is to be found, else the planner; at the end, who acted last."""
        return self._turn_of() if self._turn_of() in self.seats() else self.seats()[0]

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside."""
        self._thing = ""
        begun = StepResult(observation=self.begin_inner(task))
        self._early = self._experts_after(begun)
        return (self._early or [begun])[-1].observation

    def step(self, action: Action) -> StepResult:
        """Take a plan, or what points at its thing, as the seat's turn is."""
        own, early, self._early = self._take_action(action), self._early, []
        return replace(join_results([*early, own, *self._experts_after(own)]), is_valid=own.is_valid)

    def _experts_after(self, last: StepResult) -> list[StepResult]:
        """Return what comes of the turns of the experts after `last`."""
        done: list[StepResult] = []
        while not last.is_over and self._turn_of() in self._experts:
            last = self._take_action(self.expert_action())
            done.append(last)
        return done

    def _turn_of(self) -> str:
        """Return the seat that acts next, whoever plays it."""
        return GROUNDER if self._thing else PLANNER

    def _take_action(self, action: Action) -> StepResult:
        """Carry out `action` of the seat whose turn it is."""
        if self._thing:
            self._thing = ""
            return self._act(Action(text=f"{POINTED} {action.text.strip()}"))
        try:
            do = read_do(action.text)
        except DataError as error:
            return self._count_turn(
                StepResult(observation=f"Error: {error}", is_success=False, is_valid=False)
            )
        if do.action != POINTED:
            return self._act(Action(text=f"{do.action} {do.thing}"))
        self._thing = do.thing
        return StepResult(observation=f"{SCREEN}{self._world.screen()}\n{FIND}{do.thing}")

    @property
    def _world(self) -> Described:
        return cast(Described, self.inner)

    def instructions(self) -> str:
        """Return the instructions of the environment, and how a plan is said."""
        return f"{self.inner.instructions()}\n{PLANNER_INSTRUCTION}"

    def expert_action(self) -> Action:
        """Return the plan of the environment's expert, or what points at the thing that was planned."""
        if self._thing:
            return Action(text=self._world.elements().get(self._thing, self._thing))
        name, _, words = in_words(cast(Expert, self.inner).expert_action()).partition(" ")
        by_words = {said: thing for thing, said in self._world.elements().items()}
        return Action(text=write_do(Do(name, by_words.get(words, words) if name == POINTED else words)))

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return a click on any thing as the plan; who points makes no mistake. See `noisy.Fallible`."""
        if self._thing:
            return self.expert_action()
        return Action(text=write_do(Do(POINTED, rng.choice(list(self._world.elements())))))

    def state_key(self) -> str:
        """Return the state of the environment, and what is to be found in it."""
        return f"{cast(StateKey, self.inner).state_key()} {self._thing}"
