"""Serving a model to agents of others until interrupted, with every episode kept in a run.

An episode is whatever is asked under one path, ``/e/NAME/v1``; it ends when its client says so (``POST /e/NAME/end``
with ``{"score": 1.0}``), or with the server. One that was not scored is recorded as a failure of kind ``not_scored``:
it can be looked at and imitated, and nothing takes it for a 0.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from quintain.engines.protocol import Engine
from quintain.environments.protocol import checked_reward
from quintain.errors import EnvironmentFault
from quintain.rollout.request import EpisodeRequest
from quintain.serve.endpoint import Endpoint, Session, Terms
from quintain.serve.listener import Listener
from quintain.serve.pump import Pump
from quintain.serve.source import outcome_of, trajectory_of
from quintain.serve.spoken import Refused
from quintain.text.chat import Chat
from quintain.types import Failure, Score, Task, Trajectory

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
        terms: how episodes are sampled.
    """

    engine: Engine
    chat: Chat
    key: str
    keep: Callable[[Trajectory], None] | None = None
    terms: Terms = field(default_factory=Terms)
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
        self.pump = Pump(self.engine)
        self._over: SimpleQueue[Trajectory] = SimpleQueue()
        self._counts: Counter[str] = Counter()
        self.endpoint = Endpoint(
            self.pump, self.chat, terms=self.terms, master_key=self.key, on_end=self._ended
        )
        self.listener = Listener(
            self.endpoint, host=self.host, port=self.port, token=self.key, also=self.also
        ).start()

    def run(self) -> None:
        """Answer until `is_closed` is set, or Ctrl-C."""
        while not self.is_closed.is_set():
            if not self.pump.work():
                self.pump.wait(IDLE)
            self._keep()

    def close(self) -> None:
        """Stop listening, and keep the episodes that nobody ended."""
        self.listener.close()
        self.pump.give_up("the server ends")
        for session in list(self.endpoint.sessions.values()):
            self._end(session, NOT_SCORED)
        self._keep()

    def _ended(self, session: Session, row: dict[str, Any]) -> None:
        """Take what a client says of the end of an episode.

        Raises:
            Refused: that is no score.
        """
        score = row.get("score")
        try:
            value = checked_reward("end", "score", score)
        except EnvironmentFault as fault:
            raise Refused(400, f'{fault}, as {{"score": 1.0}}') from fault
        solved = row.get("is_success", value > 0)
        if not isinstance(solved, bool):
            raise Refused(400, f"is_success: got {solved!r:.40}; give true or false")
        self._end(session, Score(value=value, is_success=solved))

    def _end(self, session: Session, result: Score | Failure) -> None:
        """End an episode, which is to be kept if anything was asked in it."""
        self.endpoint.close(session)
        if not session.recorder.nodes:
            return
        outcome, stop = outcome_of(session, result)
        task = Task(id=f"{ENVIRONMENT}/{session.name}", environment=ENVIRONMENT, seed=session.seed)
        with self.endpoint.lock:
            index = self._counts[session.name]
            self._counts[session.name] += 1
        request = EpisodeRequest(task=task, group=session.name, index=index, seed=session.seed)
        self._over.put(trajectory_of(session, request, outcome, stop, session.seconds))
        self.pump.bell.set()

    def _keep(self) -> None:
        """Keep the episodes that ended."""
        while True:
            try:
                trajectory = self._over.get_nowait()
            except Empty:
                return
            if self.keep is not None:
                self.keep(trajectory)
