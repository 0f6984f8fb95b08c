"""What an environment shows before an action, to whom, and what it answers: everything that calls into one.

`EnvironmentReader` runs in the threads that environments run in; what it returns is plain data for the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from quintain.agents.protocol import Brief
from quintain.environments.boundary import check_instructions, check_tools
from quintain.environments.protocol import (
    Environment,
    Legal,
    Seats,
    SimultaneousSeats,
    StateKey,
    advance,
    advance_all,
    begin,
    check_observation,
)
from quintain.environments.sizes import check_size
from quintain.errors import EnvironmentFault
from quintain.types import ALONE, Action, Observation, StepResult, Task, ToolSpec, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the environment shows a seat before it acts: observation, legal actions, identity of the state."""

    observation: Observation
    legal_actions: tuple[str, ...] = ()
    state_key: str | None = None
    seat: str = ALONE
    """who sees it, and acts next"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first views of an episode, one for each seat that acts, and what the agents are told of it."""

    views: tuple[View, ...]
    brief: Brief
    seats: tuple[str, ...] = (ALONE,)
    """all seats of the episode"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the environment answers to the actions of all who acted, and the views for the next ones."""

    result: StepResult
    views: tuple[View, ...]
    """none where the episode is over"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The first turns of a recorded episode, to be continued; made by `quintain.rollout.replay`."""

    task: Task
    turns: tuple[Turn, ...]
    views: tuple[View, ...]
    """[turns + 1]: what was shown before each turn, and before the one that comes next"""
    state: tuple[Any] | None = None
    """the saved state before the next turn; None: the actions are carried out again"""
    num_steps: int | None = None
    """steps of the environment so far, where several seats act in one; None: one for each turn that acts"""
    is_repeated: bool = True
    """whether the environment comes to the same state again; else nothing goes on from here"""


class EnvironmentReader:
    """Asks environments what they show; capabilities are found once per environment class.

    State keys are left out unless `has_state_keys`: they cost time, and only some kinds of credit read them. Seats are
    told apart where an agent plays several.
    """

    def __init__(self, *, has_state_keys: bool, has_same_tools: bool = False) -> None:
        self.has_state_keys = has_state_keys
        self._tools: dict[str, tuple[ToolSpec, ...]] | None = {} if has_same_tools else None
        self._known: dict[type[Environment], tuple[bool, bool, bool, bool]] = {}

    def look(self, environment: Environment, observation: Observation) -> tuple[View, ...]:
        """Return the view of each seat that acts next, after `environment` returned `observation`."""
        is_legal, has_key, has_seats, at_once = self._abilities(environment)
        legal = check_actions(cast(Legal, environment)) if is_legal else ()
        key = cast(StateKey, environment).state_key() if has_key else None
        if at_once:
            several = cast(SimultaneousSeats, environment)
            acting = acting_seats(several)
            is_alone = len(several.seats()) < 2
            return tuple(
                View(
                    observation=check_observation(environment, several.observe(seat), "observe"),
                    legal_actions=legal,
                    state_key=key,
                    seat=ALONE if is_alone else seat,
                )
                for seat in acting
            )
        seat = acting_seat(cast(Seats, environment)) if has_seats else ALONE
        return (View(observation=observation, legal_actions=legal, state_key=key, seat=seat),)

    def start(self, environment: Environment, task: Task) -> Start:
        """Reset `environment` to `task` and return the first views and what the agents are told."""
        views = self.look(environment, begin(environment, task))
        brief = Brief(
            task=task,
            instructions=check_instructions(environment),
            tools=self._compare_tools(environment, task),
            legal_actions=views[0].legal_actions,
        )
        _, _, has_seats, at_once = self._abilities(environment)
        return Start(
            views=views, brief=brief, seats=seats_of(environment) if has_seats or at_once else (ALONE,)
        )

    def _compare_tools(self, environment: Environment, task: Task) -> tuple[ToolSpec, ...]:
        """Return the tools of `environment`, which, where that is asked for, must be those of `task` before.

        Raises:
            EnvironmentFault: they are others.
        """
        tools = check_tools(environment)
        if self._tools is None:
            return tools
        before = self._tools.setdefault(task.id, tools)
        if before != tools:
            own, other = ({spec.name: spec for spec in each} for each in (before, tools))
            names = sorted(name for name in own | other if own.get(name) != other.get(name))
            raise EnvironmentFault(
                f"tools of {task.id}: got others than in the episode before ({', '.join(names)[:80]}); trials of one "
                "task must have the same tools: fix the server or the environment"
            )
        return tools

    def act(self, environment: Environment, moves: Mapping[str, Action]) -> Answer:
        """Carry out `moves`, the action of each seat that was shown something, and return the answer."""
        if self._abilities(environment)[-1]:
            several = cast(SimultaneousSeats, environment)
            result = advance_all(several, dict(zip(several.acting(), moves.values(), strict=True)))
        else:
            (action,) = moves.values()
            result = advance(environment, action)
        if result.is_over:
            return Answer(result=result, views=())
        return Answer(result=result, views=self.look(environment, result.observation))

    def _abilities(self, environment: Environment) -> tuple[bool, bool, bool, bool]:
        """Return whether it lists actions, has keys that are recorded, has seats, and has seats that act at once."""
        kind = type(environment)
        known = self._known.get(kind)
        if known is None:
            has_key = self.has_state_keys and isinstance(environment, StateKey)
            is_legal, at_once = isinstance(environment, Legal), isinstance(environment, SimultaneousSeats)
            known = self._known[kind] = is_legal, has_key, isinstance(environment, Seats), at_once
        return known


def seats_of(environment: Environment) -> tuple[str, ...]:
    """Return the seats of `environment` as an episode names them: one seat is just the agent."""
    if not isinstance(environment, (Seats, SimultaneousSeats)):
        return (ALONE,)
    seats = tuple(environment.seats())
    return seats if len(seats) > 1 else (ALONE,)


def acting_seat(environment: Seats) -> str:
    """Return the seat of `environment` that acts next; an agent with one seat is just the agent.

    Raises:
        EnvironmentFault: it is not one of the seats, or its name holds a slash, which is kept for roles.
    """
    seats, seat = environment.seats(), environment.seat()
    if len(seats) < 2:
        return ALONE
    if seat not in seats or "/" in seat:
        raise EnvironmentFault(
            f"{type(environment).__name__}.seat must return one of {', '.join(seats)}: got {seat!r}; "
            "give the seat that acts next, without a slash in its name"
        )
    return seat


def acting_seats(environment: SimultaneousSeats) -> tuple[str, ...]:
    """Return the seats of `environment` that act next, all at once.

    Raises:
        EnvironmentFault: there is none, one is named twice or is not one of the seats, or a name holds a slash.
    """
    seats, acting = environment.seats(), tuple(environment.acting())
    known = {seat for seat in seats if "/" not in seat}
    if not acting or len(set(acting)) < len(acting) or not known.issuperset(acting):
        raise EnvironmentFault(
            f"{type(environment).__name__}.acting must return some of {', '.join(seats)}: got {acting!r}; "
            "give the seats that act next, each once, without a slash in their names"
        )
    return acting


def check_actions(environment: Legal) -> tuple[str, ...]:
    """Return the legal actions of `environment`.

    Raises:
        EnvironmentFault: one of them is not a text.
    """
    actions = tuple(cast("Iterable[object]", environment.legal_actions()))
    texts = tuple(action for action in actions if isinstance(action, str))
    if len(texts) != len(actions):
        raise EnvironmentFault(
            f"{type(environment).__name__}.legal_actions must return texts: got {actions!r:.60}; return str only"
        )
    check_size(f"{type(environment).__name__}.legal_actions", sum(map(len, texts)) + len(texts))
    return texts
