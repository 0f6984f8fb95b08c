"""Serving a model to agents of others until interrupted, with every episode kept in a run.

An episode is whatever is asked under one path, ``/e/NAME/v1``; it ends when its client says so (``POST /e/NAME/end``
with ``{"score": 1.0}``), or with the server. One that was not scored is recorded as a failure of kind ``not_scored``:
it can be looked at and imitated, and nothing takes it for a 0.

Each call is noted before it is answered (`quintain.store.calls`), so that a server that is killed loses none:
`recover_calls` makes episodes of what was under way.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from quintain.engines.protocol import Engine
from quintain.environments.protocol import check_reward
from quintain.errors import EnvironmentFault
from quintain.rollout.request import EpisodeRequest
from quintain.serve.chat_types import RequestError
from quintain.serve.endpoint import Endpoint, EpisodeLimits, Session
from quintain.serve.engine_thread import CLOSED, EngineThread
from quintain.serve.listener import Listener
from quintain.serve.recorder import facts_of, turn_of
from quintain.serve.source import episode_of, outcome_of
from quintain.store.calls import CallLog, read_calls
from quintain.text.chat import Chat
from quintain.types import Failure, Outcome, Score, Stop, Task, Trajectory, Turn, derive_seed

ENVIRONMENT = "served"
"""What the tasks of served episodes are of."""
IDLE = 0.2
NOT_SCORED = Failure(owner="environment", kind="not_scored", message="nobody said how it ended")


@dataclass
class Recording:
    """A served model: ``Recording(engine, chat, key="s3cret").run()``.

    Args:
        engine: answers; used by the thread that calls `run`.
        chat: the chat format of the model.
        key: every request must carry it.
        keep: called with each episode that ended, in the thread that calls `run` or `close`; None keeps nothing.
        calls: where each call is noted before it is answered; closed with the recording.
        terms: how episodes are sampled.
    """

    engine: Engine
    chat: Chat
    key: str
    keep: Callable[[Trajectory], None] | None = None
    calls: CallLog | None = None
    terms: EpisodeLimits = field(default_factory=EpisodeLimits)
    host: str = "127.0.0.1"
    port: int = 0
    also: str = ""
    """further names that the Host header may have, with commas"""
    is_closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Bind the address, and listen.

        Raises:
            UsageError: it cannot be bound.
        """
        self.pump = EngineThread(self.engine)
        self._over: SimpleQueue[tuple[int, Trajectory]] = SimpleQueue()
        self._counts: Counter[str] = Counter()
        self._noted: dict[int, list[Mapping[str, Any]]] = {}
        """number of an episode → what was noted of its calls last"""
        self.endpoint = Endpoint(
            self.pump, self.chat, terms=self.terms, master_key=self.key, on_end=self._end_episode,
            notes=None if self.calls is None else self._note,
        )  # fmt: skip
        self.listener = Listener(
            self.endpoint, host=self.host, port=self.port, token=self.key, also=self.also
        ).start()

    def run(self) -> None:
        """Answer until `is_closed` is set, or Ctrl-C.

        Raises:
            StoreError: what is answered cannot be recorded any more.
        """
        while not self.is_closed.is_set():
            if not self.pump.work():
                self.pump.wait(IDLE)
            self._keep()
            if self.endpoint.trouble is not None:
                raise self.endpoint.trouble

    def close(self) -> None:
        """Stop listening, and keep the episodes that nobody ended."""
        self.listener.close()
        self.pump.give_up("the server ends")
        for session in list(self.endpoint.sessions.values()):
            self._end(session, NOT_SCORED)
        self._keep()
        if self.calls is not None:
            self.calls.close()

    def _end_episode(self, session: Session, row: dict[str, Any]) -> None:
        """Take what a client says of the end of an episode.

        Raises:
            RequestError: that is no score.
        """
        score = row.get("score")
        if isinstance(score, bool):
            raise RequestError(
                400, f'end: score must be a number: got {score}; give one, as {{"score": 1.0}}'
            )
        try:
            value = check_reward("end", "score", score)
        except EnvironmentFault as fault:
            raise RequestError(400, f'{fault}, as {{"score": 1.0}}') from fault
        solved = row.get("is_success", value > 0)
        if not isinstance(solved, bool):
            raise RequestError(400, f"is_success: got {solved!r:.40}; give true or false")
        self._end(session, Score(value=value, is_success=solved))

    def _end(self, session: Session, result: Score | Failure) -> None:
        """End an episode, which is to be kept if anything was answered in it, or failed."""
        self.endpoint.close(session)
        failure = session.failure
        if not session.recorder.nodes and (failure is None or failure.kind == CLOSED):
            return
        outcome, stop = outcome_of(session, result)
        with self.endpoint.lock:
            index = self._counts[session.name]
            self._counts[session.name] += 1
        made = trajectory_of(
            session.name, index, session.recorder.turns(), outcome, stop, session.seed, session.seconds
        )
        self._over.put((session.number, made))
        self.pump.bell.set()

    def _note(self, session: Session) -> None:
        """Note the calls of an episode that are new, and what is seen of the others by now.

        Raises:
            StoreError: the disk fails.
        """
        assert self.calls is not None, "there is where to note them"
        noted = self._noted.setdefault(session.number, [])
        for node in session.recorder.nodes:
            facts = facts_of(node)
            if node.number == len(noted):
                self.calls.call(session.number, session.name, node.number, turn_of(node), session.seconds)
                noted.append(facts)
            elif facts != noted[node.number]:
                self.calls.facts(session.number, node.number, facts)
                noted[node.number] = facts

    def _keep(self) -> None:
        """Keep the episodes that ended."""
        while True:
            try:
                number, trajectory = self._over.get_nowait()
            except Empty:
                return
            if self.keep is not None:
                self.keep(trajectory)
            if self.calls is not None:
                self.calls.end(number, trajectory.group)
                self._noted.pop(number, None)


def trajectory_of(
    name: str, index: int, turns: Sequence[Turn], outcome: Outcome, stop: Stop, seed: int, seconds: float
) -> Trajectory:
    """Return the calls `turns` that were asked under `name`, for the time `index`, as an episode."""
    task = Task(id=f"{ENVIRONMENT}/{name}", environment=ENVIRONMENT, seed=seed)
    return episode_of(
        turns, EpisodeRequest(task=task, group=name, index=index, seed=seed), outcome, stop, seconds
    )


def recover_calls(file: Path, is_kept: Callable[[str, int], bool]) -> tuple[list[Trajectory], int]:
    """Return the episodes that were under way when `file` was left, not scored, and how many lines cannot be read.

    `is_kept` says whether the journal has the episode that was asked under a name for the time so and so: it may have
    been recorded in the very moment of the kill.

    Raises:
        StoreError: the file cannot be read.
    """
    found, num_broken = read_calls(file)
    counts: Counter[str] = Counter()
    episodes: list[Trajectory] = []
    for each in found:
        index = counts[each.name]
        counts[each.name] += 1
        if each.is_ended or is_kept(each.name, index):
            continue
        # Calls after one that cannot be read may go on from it.
        num_whole = next(number for number in range(len(each.turns) + 1) if number not in each.turns)
        turns = [each.turns[number] for number in range(num_whole)]
        seed = derive_seed("serve", each.name)
        if turns:
            episodes.append(
                trajectory_of(each.name, index, turns, NOT_SCORED, Stop.FAILURE, seed, each.seconds)
            )
    return episodes, num_broken
