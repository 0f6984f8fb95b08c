"""A source of episodes whose agents live outside: each gets an address and a key, and its calls are the episode.

It plays without a barrier: agents run in threads (or as commands), whose calls the engine answers together, in the
thread that draws the episodes. Failures, attempts, deadlines and budgets are those of every rollout.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from queue import Empty, SimpleQueue

from quintain.agents.external_agent import AgentFault, Expert, Outside, ask_expert
from quintain.data.messages import write_call
from quintain.errors import FailureRateError, UsageError
from quintain.rollout.failures import INFRASTRUCTURE, STALE, check_broken, check_failures
from quintain.rollout.gc_pause import gc_frozen
from quintain.rollout.play import PlayContext
from quintain.rollout.request import POLICY, EpisodeRequest
from quintain.rollout.staleness import judge_age, oldest_versions
from quintain.rollout.stepper import OURS, guard_call
from quintain.serve.chat_types import THOUGHT, AssistantMessage, ChatRequest, Row
from quintain.serve.check import check_endpoint
from quintain.serve.endpoint import Endpoint, EpisodeLimits, Session
from quintain.serve.engine_thread import EngineThread
from quintain.serve.listener import Listener
from quintain.types import Failure, Message, Outcome, Score, Stop, Task, Trajectory, Turn, as_content

IDLE = 0.2
"""Seconds between two looks at deadlines while nothing happens."""
THREAD = f"{OURS[-1]}-agent"
Play = Callable[[str, str, Task], Score]


@dataclass(slots=True, kw_only=True)
class _Live:
    """An episode that is played by its agent."""

    request: EpisodeRequest
    attempt: int
    session: Session
    started: float = field(default_factory=time.monotonic)


class ExternalAgents:
    """Makes sources whose episodes `outside` plays; the server stands until it is closed.

    Example: ``Rollout(outside, make_environment, engine, source=ExternalAgents(outside))``. Unless `is_checked` says
    that it was done, the endpoint is looked at before the first episode (`quintain.serve.check`). With `is_taught` the
    agent's expert answers instead of the engine's policy, which says what it is told to.
    """

    def __init__(self, outside: Outside, *, is_checked: bool = False, is_taught: bool = False) -> None:
        """Find the agent, its grader and its expert; nothing is started yet.

        Raises:
            UsageError: they are not there.
        """
        self.outside = outside
        self.expert = outside.find_expert() if is_taught else None
        self.play: Play = outside.prepare_player()
        self.make_guard = outside.read_guard()
        self.endpoint: Endpoint | None = None
        self._listener: Listener | None = None
        self._numbers = count()
        self.has_played = False
        """Whether an episode came to an end that is no failure."""
        self._is_checked = is_checked

    def __call__(self, stage: PlayContext) -> OutsideSource:
        """Return the source for one call of a rollout.

        Raises:
            EngineFault: the endpoint does not do what it must.
        """
        if self.endpoint is None:
            engine = stage.engines.get(POLICY) or next(iter(stage.engines.values()))
            pump = EngineThread(engine, patience=stage.limits.reply_timeout)
            self.endpoint = Endpoint(pump, self.outside.chat)
            self._listener = Listener(self.endpoint).start()
            if not self._is_checked:
                check_endpoint(self.endpoint, self._listener.url)
                self._is_checked = True
        return OutsideSource(self, stage)

    def url(self, session: Session) -> str:
        """Return the ``base_url`` of an episode."""
        assert self._listener is not None, "a session is opened at a server"
        return f"{self._listener.url}/e/{session.name}/v1"

    def answers(self, task: Task) -> Callable[[ChatRequest], tuple[int, ...]] | None:
        """Return what is said in an episode of `task` instead of being sampled, where the expert says it."""
        if self.expert is None:
            return None
        return partial(answer_as_expert, self.outside, self.expert, replace(task))

    def name(self) -> str:
        """Return a new name for an episode."""
        return f"{next(self._numbers)}"

    def close(self) -> None:
        """Stop the server; may be repeated."""
        listener, self._listener, self.endpoint = self._listener, None, None
        if listener is not None:
            listener.close()


class OutsideSource:
    """Plays episodes by agents outside; see `quintain.rollout.source.Source`."""

    def __init__(self, home: ExternalAgents, stage: PlayContext) -> None:
        assert home.endpoint is not None, "the server stands"
        self._home, self._stage, self._endpoint = home, stage, home.endpoint
        self._live: dict[str, _Live] = {}
        self._done: SimpleQueue[tuple[str, Score | Failure]] = SimpleQueue()
        self._num_attempts = 0
        self._broken: list[Failure] = []

    def episodes(self, requests: Iterable[EpisodeRequest]) -> Generator[Trajectory]:
        """See `Source.episodes`.

        Raises:
            FailureRateError: more than the allowed share of episodes failed.
            EngineFault: the engine does not answer.
        """
        limits, pump = self._stage.limits, self._endpoint.pump
        queue, total = iter(requests), len(requests) if isinstance(requests, Sized) else None
        failures: list[Failure] = []
        num_drawn = num_finished = 0
        finished: deque[Trajectory] = deque()
        try:
            with gc_frozen():
                while True:
                    # One episode alone comes first: an agent that cannot play at all costs one, not hundreds.
                    most = limits.concurrency if self._home.has_played else 1
                    new = list(islice(queue, max(0, most - len(self._live))))
                    num_drawn += len(new)
                    for request in new:
                        self._begin(request, 0)
                    if not self._live:
                        return
                    if not pump.work():
                        pump.wait(IDLE)
                    finished += self._take_ended()
                    while finished:
                        trajectory = finished.popleft()
                        num_finished += 1
                        failure = trajectory.outcome
                        is_first = not self._home.has_played and limits.max_failure_share < 1
                        if is_first and isinstance(failure, Failure):
                            raise FailureRateError(
                                f"the first episode of agent {self._home.outside.name} failed by the {failure.owner}: "
                                f"{failure.message}; mend that, nothing else was played"
                            )
                        self._home.has_played = True
                        failures += (
                            [failure] if isinstance(failure, Failure) and failure.kind != STALE else []
                        )
                        yield trajectory
                    of = num_drawn if total is None else total
                    check_failures(failures, finished=num_finished, total=of, most=limits.max_failure_share)
                    name = f"agent {self._home.outside.name}"
                    check_broken(name, self._broken, self._num_attempts, most=limits.max_broken_share)
        finally:
            for live in self._live.values():
                self._endpoint.close(live.session)
            pump.give_up("the rollout is over")

    def _begin(self, request: EpisodeRequest, attempt: int) -> None:
        """Open an episode at the endpoint, and let its agent play it."""
        outside = self._home.outside
        if request.prefix is not None:
            raise UsageError(
                f"agent {outside.name}: got the beginning of an episode to go on from, and an agent outside begins at "
                "its own; take a method that samples whole episodes"
            )
        terms = EpisodeLimits(
            temperature=outside.temperature,
            max_turn_tokens=outside.max_tokens,
            max_calls=request.max_turns or self._stage.limits.max_turns or outside.max_calls,
            answers=self._home.answers(request.task),
            guard=self._home.make_guard,
        )
        session, key = self._endpoint.open(self._home.name(), request.seed, terms)
        self._live[session.name] = _Live(request=request, attempt=attempt, session=session)
        self._num_attempts += 1
        call = partial(self._home.play, self._home.url(session), key, replace(request.task))
        threading.Thread(
            target=self._play_episode, args=(session.name, call), name=THREAD, daemon=True
        ).start()

    def _play_episode(self, name: str, call: Callable[[], Score]) -> None:
        """Let an agent play; it runs in the agent's thread."""
        self._done.put((name, guard_call(call)))
        self._endpoint.pump.bell.set()

    def _take_ended(self) -> list[Trajectory]:
        """Return the episodes that ended, or whose time is over; those that are tried again have begun again."""
        found: list[tuple[str, Score | Failure]] = []
        while True:
            try:
                found.append(self._done.get_nowait())
            except Empty:
                break
        now, deadline = time.monotonic(), self._home.outside.deadline
        message = (
            f"agent {self._home.outside.name}: got no end within {deadline:g} s; raise deadline, or mend it"
        )
        late = Failure(owner="environment", kind="timeout", message=message)
        over = {name for name, _ in found}
        # A command is ended a little before by whoever runs it.
        found += [
            (n, late)
            for n, live in self._live.items()
            if n not in over and now - live.started > deadline + 1.0
        ]
        ended: list[Trajectory] = []
        for name, result in found:
            live = self._live.pop(name, None)
            if live is None:
                continue  # it was given up before
            self._endpoint.close(live.session)
            outcome, stop = outcome_of(live.session, result)
            if isinstance(outcome, Failure) and outcome.owner in INFRASTRUCTURE:
                self._broken.append(outcome)
            if isinstance(outcome, Failure) and live.attempt + 1 < self._stage.limits.attempts:
                self._stage.retries.append((live.request.group, live.request.index, outcome))
                self._begin(live.request, live.attempt + 1)
                continue
            trajectory = episode_of(
                live.session.recorder.turns(), live.request, outcome, stop, now - live.started
            )
            age = self._stage.sampler.staleness(oldest_versions(trajectory))
            ended.append(judge_age(trajectory, age, self._stage.max_staleness))
        return ended


def answer_as_expert(outside: Outside, expert: Expert, task: Task, asked: ChatRequest) -> tuple[int, ...]:
    """Return what `expert` answers to a request, as the tokens in which the model would say it.

    Raises:
        AgentFault: it says nothing that can be written, or more than the model may.
    """
    said = ask_expert(expert, task, [write_message(each) for each in asked.messages], outside.expert)
    words = "" if said.tool_calls else said.text
    message = Message(role="assistant", content=as_content(words), tool_calls=said.tool_calls)
    ids = outside.chat.write_message(message).token_ids
    if len(ids) > outside.max_tokens:
        raise AgentFault(
            f"expert {outside.expert}: got an answer of {len(ids)} tokens, and the model may say {outside.max_tokens}; "
            "raise max_tokens, or say less"
        )
    return ids


def write_message(message: AssistantMessage) -> Row:
    """Return a message as OpenAI writes it."""
    row: Row = {"role": message.role, "content": message.text}
    if message.thinking:
        row[THOUGHT] = message.thinking
    if message.calls:
        row["tool_calls"] = [write_call(call) for call in message.calls]
    return row


def outcome_of(session: Session, result: Score | Failure) -> tuple[Outcome, Stop]:
    """Return how an episode ended, by what its agent came to, its `result`, and by what the endpoint saw.

    What broke at the endpoint comes first: an episode that was not wholly recorded has no score. An agent that ends
    with an error after its budget was refused has used the budget up, and scores 0.
    """
    losses = session.recorder.losses
    if losses:
        message = f"{len(losses)} calls were not recorded, the first by {losses[0]}"
        return Failure(owner="engine", kind="capture", message=message), Stop.FAILURE
    if session.failure is not None:
        return session.failure, Stop.FAILURE
    if isinstance(result, Failure):
        if session.stop is not None and result.owner == "environment" and result.kind != "timeout":
            return Score(value=0.0, is_success=False), session.stop
        return result, Stop.FAILURE
    if not session.recorder.nodes:
        message = "the agent ended without a call of the model; let it ask its base_url with its api_key"
        return Failure(owner="environment", kind="no_calls", message=message), Stop.FAILURE
    return result, session.stop or Stop.TERMINATED


def episode_of(
    calls: Sequence[Turn], request: EpisodeRequest, outcome: Outcome, stop: Stop, seconds: float
) -> Trajectory:
    """Return `calls` as an episode; the last of them that was read is paid the score."""
    turns = [*calls]
    if isinstance(outcome, Score) and turns:
        paid = max(range(len(turns)), key=lambda place: (was_read(turns[place]), place))
        turns[paid] = replace(turns[paid], reward=outcome.value)
    shown = "" if not isinstance(outcome, Score) else f"score {outcome.value:g}"
    return Trajectory(
        task=request.task, turns=tuple(turns), outcome=outcome, stop=stop, seed=request.seed,
        group=request.group, index=request.index, final_observation=as_content(shown), seconds=seconds,
    )  # fmt: skip


def was_read(turn: Turn) -> bool:
    """Whether a client read the answer of a call that was no auxiliary one."""
    return turn.facts.get("delivery") == "whole" and turn.facts.get("kind") != "auxiliary"
