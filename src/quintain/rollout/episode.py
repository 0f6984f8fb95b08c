"""One live episode: what the environment and the harnesses have said so far, and how it ends.

`LiveEpisode` is the only mutable record of a rollout; `finish` turns it into a frozen `Trajectory`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import cast

from quintain.agents.protocol import Brief, Deliberates, Prompt, Session
from quintain.environments.protocol import Environment
from quintain.errors import InvariantError, UsageError
from quintain.rollout.request import Cast, EpisodeRequest
from quintain.rollout.staleness import versions_of
from quintain.rollout.views import Answer, Start, View
from quintain.types import (
    ALONE,
    NOTHING,
    Action,
    Completion,
    Failure,
    Observation,
    Outcome,
    Score,
    Stop,
    Trajectory,
    Turn,
    as_content,
    derive_seed,
)

MAX_THOUGHTS = 64
"""Turns in which a harness may do nothing for each one in which it acts."""


@cache
def deliberates(kind: type[Session]) -> bool:
    """Whether sessions of `kind` may speak several times before they act; asking a class once is quick."""
    return issubclass(kind, Deliberates)


@dataclass(slots=True, kw_only=True)
class Voice:
    """One seat's conversation: its session and its token streams, which the other seats never see."""

    name: str
    """name of its streams without their number"""
    policy: str
    """the policy that speaks, or spoke last"""
    plays: Callable[[str], str]
    """role → the policy that plays it"""
    session: Session
    deliberates: Deliberates | None
    """the session, if it may speak several times before it acts"""
    view: View
    """what it is shown, or was shown last"""
    prompt: Prompt | None = None
    """what it was asked last"""
    follow_up: Prompt | None = None
    """the next prompt of a harness that has not acted yet"""
    thoughts: list[Turn] = field(default_factory=list[Turn])
    """turns since it was shown `view` in which nothing was done"""
    said: tuple[Completion, Action] | None = None
    """what it is about to do, while others still choose"""
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

    def ask(self) -> str | None:
        """Make the next prompt and put it at the end of the stream; return the name of the stream it ended, if any.

        Raises:
            UsageError: the next role is played by another policy, which has not read the stream.
        """
        follow_up, self.follow_up = self.follow_up, None
        prompt = follow_up or self.session.observe(self.view.observation, self.view.legal_actions)
        self.prompt = prompt
        policy = self.plays(prompt.role)
        if policy != self.policy and self.has_begun and not prompt.starts_segment:
            raise UsageError(
                f"policy of {prompt.role or 'what acts'}: got {policy}, but it goes on where {self.policy} spoke; "
                "give both to one policy"
            )
        self.policy = policy
        ended = None
        if prompt.starts_segment:
            ended = self.stream_name if self.has_begun else None
            self.stream += self.has_begun
            self.length, self.unsent = 0, ()
        self.has_begun = True
        self.length += len(prompt.token_ids)
        return ended

    def read(self, completion: Completion) -> Action:
        """Return the action in `completion`; with a `follow_up` afterwards it is not to be carried out."""
        self.length += len(completion.token_ids)
        action = self.session.read(completion)
        if self.deliberates is not None:
            self.follow_up = self.deliberates.more()
        return action


@dataclass(frozen=True, slots=True)
class Wait:
    """On whom an episode waits, and since when on the monotonic clock: ``Wait("a reply of the engine", 12.5)``."""

    owner: str
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True, kw_only=True)
class LiveEpisode:
    """The episode that `request` asks for, while `players` play it."""

    request: EpisodeRequest
    players: Cast
    environment: Environment | None = None
    """None until one is free or made"""
    brief: Brief | None = None
    voices: dict[str, Voice] = field(default_factory=dict[str, Voice])
    """by seat; a seat has one from when it first acts"""
    acting: tuple[str, ...] = ()
    """the seats that act next, all at once"""
    shown: Observation = ""
    """what the environment returned last"""
    num_acted: int = 0
    """steps of the environment so far"""
    num_thoughts: int = 0
    """turns in which nothing was done"""
    turns: list[Turn] = field(default_factory=list[Turn])
    attempt: int = 0
    started: float = field(default_factory=time.monotonic)
    wait: Wait = field(default_factory=lambda: Wait("its turn to begin"))
    """on whom it waits, for the watchdog"""
    is_success: bool | None = None
    oldest: dict[str, int] = field(default_factory=dict[str, int])
    """policy → oldest version of its weights that a token was sampled with"""

    @property
    def name(self) -> str:
        """The name of this attempt at the episode, unique among live ones."""
        return f"{self.request.group}/{self.request.index}/{self.attempt}"

    def open(self, start: Start) -> None:
        """Begin the conversations, up to the end of the prefix.

        Raises:
            InvariantError: the harness writes other prompts than those of the prefix.
            UsageError: nobody plays one of the seats.
        """
        self.brief = start.brief
        self.players.check(start.seats)
        prefix = self.request.prefix
        if prefix is not None:
            for view, turn in zip(prefix.views, prefix.turns, strict=False):
                voice = self._face(view)
                voice.ask()
                assert voice.prompt is not None, "it was just asked"
                if voice.prompt.token_ids != turn.prompt_ids:
                    raise InvariantError(
                        f"prompt of turn {len(self.turns)} of {self.request.task.id}: got other tokens than were "
                        "recorded; continue an episode with the harness that made it"
                    )
                voice.read(turn.completion)
                self.turns.append(turn)
                self.num_acted += not turn.is_internal
                self.num_thoughts += turn.is_internal
                voice.unsent += (*voice.prompt.token_ids, *turn.completion.token_ids)
            if prefix.num_steps is not None:
                self.num_acted = prefix.num_steps
        self.shown = start.views[0].observation
        self.show(start.views)

    def show(self, views: tuple[View, ...]) -> None:
        """Let `views` be what the seats that act next are shown."""
        for view in views:
            self._face(view)
        self.acting = tuple([view.seat for view in views])

    def seed(self, seat: str) -> int:
        """Return the seed of what `seat` says next; it depends on the episode and the turn alone."""
        number = len(self.turns) + len(self.voices[seat].thoughts)
        if len(self.acting) == 1:
            return derive_seed(self.request.seed, number)
        return derive_seed(self.request.seed, number, seat)

    def read(self, seat: str, completion: Completion) -> bool:
        """Take in what `seat` said; return whether it is to be asked again before it acts."""
        voice = self.voices[seat]
        oldest = self.oldest.setdefault(voice.policy, completion.policy_version)
        if completion.policy_version < oldest or completion.version_spans:
            self.oldest[voice.policy] = min(oldest, *versions_of(completion))
        action = voice.read(completion)
        if voice.follow_up is None:
            voice.said = completion, action
            return False
        self._ponder(voice, completion, action)
        return True

    @property
    def moves(self) -> dict[str, Action] | None:
        """The action of each seat that acts; None while one of them still chooses."""
        chosen: dict[str, Action] = {}
        for seat in self.acting:
            said = self.voices[seat].said
            if said is None:
                return None
            chosen[seat] = said[1]
        return chosen

    def record(self, answer: Answer) -> None:
        """Append the turns of all seats that acted, which got `answer`.

        What is everybody's (a shared reward, its terms, failed calls) stands in the last of these turns; where the
        environment pays by seat, each has its own seat's reward, and the last one also those of seats that did not act.
        """
        result, last = answer.result, self.acting[-1]
        paid = result.rewards
        others = {seat: paid[seat] for seat in paid if seat not in self.acting} if paid else NOTHING
        for seat in self.acting:
            voice = self.voices[seat]
            prompt = voice.prompt
            assert prompt is not None and voice.said is not None, "all who act have spoken"
            completion, action = voice.said
            is_last = seat == last
            own: Mapping[str, float] = {seat: paid[seat]} if seat in paid else NOTHING
            if is_last and others:
                own = {**own, **others}
            if voice.thoughts:
                self.turns += voice.thoughts
                voice.thoughts = []
            voice.said = None
            self.turns.append(
                Turn(
                    seat=seat,
                    observation=as_content(voice.view.observation),
                    prompt_ids=prompt.token_ids,
                    completion=completion,
                    action=action,
                    reward=float(result.reward) if is_last else 0.0,
                    rewards=own,
                    reward_terms=dict(result.reward_terms) if is_last and result.reward_terms else NOTHING,
                    state_key=voice.view.state_key,
                    is_valid=result.is_valid and action.error is None,
                    starts_segment=prompt.starts_segment,
                    tool_errors=result.tool_errors if is_last else (),
                )
            )
        self.num_acted += 1
        self.shown = result.observation
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
        thoughts = [turn for seat in self.acting for turn in self.voices[seat].thoughts]
        return Trajectory(
            task=self.request.task,
            turns=(*self.turns, *thoughts),
            outcome=outcome,
            stop=Stop.FAILURE if isinstance(outcome, Failure) else stop,
            seed=self.request.seed,
            group=self.request.group,
            index=self.request.index,
            final_observation=as_content(self.shown),
            seconds=time.monotonic() - self.started,
        )

    def _face(self, view: View) -> Voice:
        """Return the conversation of the seat that is shown `view`, which begins with its first."""
        seat = view.seat
        voice = self.voices.get(seat)
        if voice is not None:
            voice.view = view
            return voice
        assert self.brief is not None, "an episode is opened before it is asked"
        players = (
            self.players
        )  # a voice keeps these, and not the episode that keeps it: a circle is freed late
        policy = players.policy(seat)
        session = players.agents[policy].open(replace(self.brief, legal_actions=view.legal_actions))
        self.voices[seat] = Voice(
            name=self.name if seat == ALONE else f"{self.name}/{seat}",
            policy=policy,
            plays=lambda role: players.policy(f"{seat}/{role}" if role else seat),
            session=session,
            deliberates=cast(Deliberates, session) if deliberates(type(session)) else None,
            view=view,
        )
        return self.voices[seat]

    def _ponder(self, voice: Voice, completion: Completion, action: Action) -> None:
        """Note the turn in which `action` was read and nothing was done."""
        assert voice.prompt is not None, "a turn has a prompt"
        if self.num_thoughts >= MAX_THOUGHTS * (self.num_acted + 1):
            raise InvariantError(
                f"a harness must act at last: got {MAX_THOUGHTS} turns in which nothing was done; "
                "let its more() return None"
            )
        self.num_thoughts += 1
        shows = voice.prompt.shows
        voice.thoughts.append(
            Turn(
                seat=f"{voice.view.seat}/{voice.prompt.role or 'thought'}",
                observation=as_content(voice.view.observation if shows is None else shows),
                prompt_ids=voice.prompt.token_ids,
                completion=completion,
                action=action,
                starts_segment=voice.prompt.starts_segment,
            )
        )
