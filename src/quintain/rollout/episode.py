"""One live episode: what the environment and the harness have said so far, and how it ends.

`Episode` is the only mutable record of a rollout; `finish` turns it into a frozen `Trajectory`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from quintain.agents.protocol import Agent, Brief, Deliberates, Prompt, Session
from quintain.environments.boundary import check_instructions, check_tools
from quintain.environments.protocol import Environment, Legal, Seats, StateKey, advance, begin
from quintain.errors import EnvironmentFault, InvariantError
from quintain.types import (
    ALONE,
    Action,
    Completion,
    Failure,
    Observation,
    Outcome,
    Score,
    StepResult,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
)

"""The seat of an environment that knows of no seats."""
MOST_THOUGHTS = 64
"""Turns in which a harness may do nothing for each one in which it acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the environment shows before an action: observation, legal actions, identity of the state."""

    observation: Observation
    legal_actions: tuple[str, ...] = ()
    state_key: str | None = None
    seat: str = ALONE
    """who sees it, and acts next"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first view of an episode, and what the agent is told of it."""

    view: View
    brief: Brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the environment answers to an action, and the view for the next one."""

    result: StepResult
    view: View


class Looks:
    """What is looked at before every action; capabilities are found once per environment class.

    State keys are left out unless `has_state_keys`: they cost time, and only some kinds of credit read them. Seats are
    told apart where an agent plays several.
    """

    def __init__(self, *, has_state_keys: bool) -> None:
        self.has_state_keys = has_state_keys
        self._known: dict[type[Environment], tuple[bool, bool, bool]] = {}

    def look(self, environment: Environment, observation: Observation) -> View:
        """Return the view of `environment` after `observation`."""
        kind = type(environment)
        if kind not in self._known:
            has_key = self.has_state_keys and isinstance(environment, StateKey)
            self._known[kind] = isinstance(environment, Legal), has_key, isinstance(environment, Seats)
        is_legal, has_key, has_seats = self._known[kind]
        return View(
            observation=observation,
            legal_actions=checked_actions(cast(Legal, environment)) if is_legal else (),
            state_key=cast(StateKey, environment).state_key() if has_key else None,
            seat=acting_seat(cast(Seats, environment)) if has_seats else ALONE,
        )

    def start(self, environment: Environment, task: Task) -> Start:
        """Reset `environment` to `task` and return the first view and what the agent is told."""
        view = self.look(environment, begin(environment, task))
        brief = Brief(
            task=task,
            instructions=check_instructions(environment),
            tools=check_tools(environment),
            legal_actions=view.legal_actions,
        )
        return Start(view=view, brief=brief)

    def act(self, environment: Environment, action: Action) -> Answer:
        """Carry out `action` and return the answer."""
        result = advance(environment, action)
        if result.is_terminated or result.is_truncated:
            return Answer(result=result, view=View(observation=result.observation))
        return Answer(result=result, view=self.look(environment, result.observation))


@cache
def deliberates(kind: type[Session]) -> bool:
    """Whether sessions of `kind` may speak several times before they act; asking a class once is quick."""
    return issubclass(kind, Deliberates)


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


def checked_actions(environment: Legal) -> tuple[str, ...]:
    """Return the legal actions of `environment`.

    Raises:
        EnvironmentFault: one of them is not a text.
    """
    actions = tuple(cast("Iterable[object]", environment.legal_actions()))
    texts = tuple(action for action in actions if isinstance(action, str))
    if len(texts) != len(actions):
        raise EnvironmentFault(
            f"{type(environment).__name__}.legal_actions must return texts: got {actions!r}; return str only"
        )
    return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The first turns of a recorded episode, to be continued; made by `quintain.rollout.replay`."""

    task: Task
    turns: tuple[Turn, ...]
    views: tuple[View, ...]
    """[turns + 1]: what was shown before each turn, and before the one that comes next"""
    state: tuple[Any] | None = None
    """the saved state before the next turn; None: the actions are carried out again"""


@dataclass(slots=True, kw_only=True)
class Voice:
    """One seat's conversation: its session and its token streams, which the other seats never see."""

    name: str
    """name of its streams without their number"""
    session: Session
    deliberates: Deliberates | None
    """the session, if it may speak several times before it acts"""
    stream: int = 0
    """number of the current token stream (segment)"""
    length: int = 0
    """tokens of the current stream"""
    unsent: tuple[int, ...] = ()
    """tokens of the current stream that the engine has not seen: those of the prefix"""
    has_begun: bool = False

    @property
    def stream_name(self) -> str:
        """Name of the current token stream, unique among live ones."""
        return f"{self.name}/{self.stream}"

    def take(self, prompt: Prompt) -> str | None:
        """Put `prompt` at the end of the stream, or begin a new one; return the name of the one that ended."""
        ended = None
        if prompt.starts_segment:
            ended = self.stream_name if self.has_begun else None
            self.stream += self.has_begun
            self.length, self.unsent = 0, ()
        self.has_begun = True
        self.length += len(prompt.token_ids)
        return ended


@dataclass(frozen=True, slots=True)
class Wait:
    """On whom an episode waits, and since when on the monotonic clock: ``Wait("a reply of the engine", 12.5)``."""

    owner: str
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True, kw_only=True)
class Episode:
    """A live episode of `task`, number `index` of `group`."""

    task: Task
    group: str
    index: int
    seed: int
    environment: Environment
    agent: Agent | None = None
    brief: Brief | None = None
    voices: dict[str, Voice] = field(default_factory=dict[str, Voice])
    """by seat; a seat has one from when it first acts"""
    view: View = field(default_factory=lambda: View(observation=""))
    prompt: Prompt | None = None
    follow_up: Prompt | None = None
    """the next prompt of a harness that has not acted yet"""
    num_acted: int = 0
    """turns in which something was done"""
    turns: list[Turn] = field(default_factory=list[Turn])
    attempt: int = 0
    started: float = field(default_factory=time.monotonic)
    wait: Wait = field(default_factory=lambda: Wait("its turn to begin"))
    """on whom it waits, for the watchdog"""
    is_success: bool | None = None
    prefix: Prefix | None = None
    """turns of another episode that this one continues"""
    ended: str | None = None
    """name of the stream that the newest prompt put an end to"""

    @property
    def voice(self) -> Voice:
        """The conversation of the seat that acts next."""
        seat = self.view.seat
        if seat not in self.voices:
            assert self.agent is not None and self.brief is not None, (
                "an episode is opened before it is asked"
            )
            session = self.agent.open(replace(self.brief, legal_actions=self.view.legal_actions))
            name = f"{self.group}/{self.index}/{self.attempt}"
            self.voices[seat] = Voice(
                name=name if seat == ALONE else f"{name}/{seat}",
                session=session,
                deliberates=cast(Deliberates, session) if deliberates(type(session)) else None,
            )
        return self.voices[seat]

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Names of the current token streams of all seats."""
        return tuple(voice.stream_name for voice in self.voices.values())

    def open(self, agent: Agent, start: Start) -> None:
        """Begin the conversations, up to the end of the prefix."""
        self.view, self.agent, self.brief = start.view, agent, start.brief
        if self.prefix is None:
            return
        for view, turn in zip(self.prefix.views, self.prefix.turns, strict=False):
            self.view = view
            prompt = self.ask()
            if prompt.token_ids != turn.prompt_ids:
                raise InvariantError(
                    f"prompt of turn {len(self.turns)} of {self.task.id}: got other tokens than were recorded; "
                    "continue an episode with the harness that made it"
                )
            self.read(turn.completion)
            self.turns.append(turn)
            self.num_acted += not turn.is_internal
            self.voice.unsent += (*prompt.token_ids, *turn.completion.token_ids)
        self.view = self.prefix.views[-1]

    def ask(self) -> Prompt:
        """Return the prompt of the next turn."""
        follow_up, self.follow_up = self.follow_up, None
        voice = self.voice
        self.prompt = follow_up or voice.session.observe(self.view.observation, self.view.legal_actions)
        self.ended = voice.take(self.prompt)
        return self.prompt

    def read(self, completion: Completion) -> Action:
        """Return the action in `completion`."""
        voice = self.voice
        voice.length += len(completion.token_ids)
        action = voice.session.read(completion)
        if voice.deliberates is not None:
            self.follow_up = voice.deliberates.more()
        return action

    def ponder(self, completion: Completion, action: Action) -> None:
        """Append the turn in which `action` was read and nothing was done."""
        assert self.prompt is not None, "a turn has a prompt"
        if len(self.turns) - self.num_acted >= MOST_THOUGHTS * (self.num_acted + 1):
            raise InvariantError(
                f"a harness must act at last: got {MOST_THOUGHTS} turns in which nothing was done; "
                "let its more() return None"
            )
        self.turns.append(
            Turn(
                seat=f"{self.view.seat}/{self.prompt.role or 'thought'}",
                observation=as_content(
                    self.view.observation if self.prompt.shows is None else self.prompt.shows
                ),
                prompt_ids=self.prompt.token_ids,
                completion=completion,
                action=action,
                starts_segment=self.prompt.starts_segment,
            )
        )

    def record(self, completion: Completion, action: Action, answer: Answer) -> None:
        """Append the turn in which `action` got `answer`."""
        assert self.prompt is not None, "a turn has a prompt"
        result = answer.result
        self.turns.append(
            Turn(
                seat=self.view.seat,
                observation=as_content(self.view.observation),
                prompt_ids=self.prompt.token_ids,
                completion=completion,
                action=action,
                reward=float(result.reward),
                reward_terms=dict(result.reward_terms),
                state_key=self.view.state_key,
                is_valid=result.is_valid and action.error is None,
                starts_segment=self.prompt.starts_segment,
                tool_errors=result.tool_errors,
            )
        )
        self.num_acted += 1
        self.view = answer.view
        if result.is_success is not None:
            self.is_success = bool(result.is_success)

    def score(self) -> Score:
        """Return the outcome of the turns so far."""
        value = sum(turn.reward for turn in self.turns)
        return Score(value=value, is_success=value > 0 if self.is_success is None else self.is_success)

    def finish(self, stop: Stop, outcome: Outcome) -> Trajectory:
        """Return the episode as a trajectory that ended with `stop`."""
        if stop.is_truncation and isinstance(outcome, Score) and self.is_success is None:
            outcome = Score(value=outcome.value, is_success=False)
        return Trajectory(
            task=self.task,
            turns=tuple(self.turns),
            outcome=outcome,
            stop=Stop.FAILURE if isinstance(outcome, Failure) else stop,
            seed=self.seed,
            group=self.group,
            index=self.index,
            final_observation=as_content(self.view.observation),
            seconds=time.monotonic() - self.started,
        )
