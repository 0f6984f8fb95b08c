"""One live episode: what the environment and the harness have said so far, and how it ends.

`Episode` is the only mutable record of a rollout; `finish` turns it into a frozen `Trajectory`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from quintain.agents.protocol import Agent, Brief, Deliberates, Prompt, Session
from quintain.environments.boundary import checked_instructions, checked_tools
from quintain.environments.protocol import Environment, Legal, StateKey, advance, begin
from quintain.errors import EnvironmentFault, InvariantError
from quintain.types import (
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

MOST_THOUGHTS = 64
"""Turns in which a harness may do nothing for each one in which it acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the environment shows before an action: observation, legal actions, identity of the state."""

    observation: Observation
    legal_actions: tuple[str, ...] = ()
    state_key: str | None = None


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

    State keys are left out unless `has_state_keys`: they cost time, and only some kinds of credit read them.
    """

    def __init__(self, *, has_state_keys: bool) -> None:
        self.has_state_keys = has_state_keys
        self._known: dict[type[Environment], tuple[bool, bool]] = {}

    def look(self, environment: Environment, observation: Observation) -> View:
        """Return the view of `environment` after `observation`."""
        kind = type(environment)
        if kind not in self._known:
            has_key = self.has_state_keys and isinstance(environment, StateKey)
            self._known[kind] = isinstance(environment, Legal), has_key
        is_legal, has_key = self._known[kind]
        return View(
            observation=observation,
            legal_actions=checked_actions(cast(Legal, environment)) if is_legal else (),
            state_key=cast(StateKey, environment).state_key() if has_key else None,
        )

    def start(self, environment: Environment, task: Task) -> Start:
        """Reset `environment` to `task` and return the first view and what the agent is told."""
        view = self.look(environment, begin(environment, task))
        brief = Brief(
            task=task,
            instructions=checked_instructions(environment),
            tools=checked_tools(environment),
            legal_actions=view.legal_actions,
        )
        return Start(view=view, brief=brief)

    def act(self, environment: Environment, action: Action) -> Answer:
        """Carry out `action` and return the answer."""
        result = advance(environment, action)
        if result.is_terminated or result.is_truncated:
            return Answer(result=result, view=View(observation=result.observation))
        return Answer(result=result, view=self.look(environment, result.observation))


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
class Episode:
    """A live episode of `task`, number `index` of `group`."""

    task: Task
    group: str
    index: int
    seed: int
    environment: Environment
    session: Session | None = None
    deliberates: Deliberates | None = None
    """the session, if it may speak several times before it acts"""
    view: View = field(default_factory=lambda: View(observation=""))
    prompt: Prompt | None = None
    follow_up: Prompt | None = None
    """the next prompt of a harness that has not acted yet"""
    num_acted: int = 0
    """turns in which something was done"""
    turns: list[Turn] = field(default_factory=list[Turn])
    stream: int = 0
    """number of the current token stream (segment)"""
    stream_length: int = 0
    attempt: int = 0
    started: float = field(default_factory=time.monotonic)
    is_success: bool | None = None
    prefix: Prefix | None = None
    """turns of another episode that this one continues"""
    unsent: tuple[int, ...] = ()
    """tokens of the current stream that the engine has not seen: those of the prefix"""

    @property
    def name(self) -> str:
        """Name of the current token stream, unique among live ones."""
        return f"{self.group}/{self.index}/{self.attempt}/{self.stream}"

    def open(self, agent: Agent, start: Start) -> None:
        """Begin the conversation, up to the end of the prefix."""
        self.view = start.view
        self.session = agent.open(start.brief)
        self.deliberates = self.session if isinstance(self.session, Deliberates) else None
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
            self.unsent += (*prompt.token_ids, *turn.completion.token_ids)
        self.view = self.prefix.views[-1]

    def ask(self) -> Prompt:
        """Return the prompt of the next turn."""
        assert self.session is not None, "an episode is opened before it is asked"
        follow_up, self.follow_up = self.follow_up, None
        self.prompt = follow_up or self.session.observe(self.view.observation, self.view.legal_actions)
        if self.prompt.starts_segment:
            self.stream += bool(self.turns)
            self.stream_length = 0
            self.unsent = ()
        self.stream_length += len(self.prompt.token_ids)
        return self.prompt

    def read(self, completion: Completion) -> Action:
        """Return the action in `completion`."""
        assert self.session is not None, "an episode is opened before it is read"
        self.stream_length += len(completion.token_ids)
        action = self.session.read(completion)
        if self.deliberates is not None:
            self.follow_up = self.deliberates.more()
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
                seat=f"agent/{self.prompt.role or 'thought'}",
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
