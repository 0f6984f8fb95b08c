"""The other side of `engines.process`: a local engine that samples while requests, weights and questions come in.

Frames are read between two rounds of the engine, so that everything happens at a token boundary. What the engine
raises is an answer, too.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.errors import EngineFault, QuintainError
from quintain.processes.host import receive, send, take_streams

if TYPE_CHECKING:
    from quintain.engines.protocol import Engine, PauseMode

Row = dict[str, Any]
BEAT = 1.0
"""Seconds between two signs of life while it works."""
IDLE = 60.0
"""Seconds of one wait for something to do."""


class Host:
    """Answers frames read from the descriptor `requests` on the descriptor `replies`."""

    def __init__(self, requests: int, replies: int) -> None:
        self._requests, self._replies = requests, replies
        self._engine: Engine | None = None
        self._numbers: dict[str, int] = {}
        """session → number of its request"""
        self._is_paused = False
        self._spoke = time.monotonic()

    def serve(self) -> None:
        """Work and answer until the other side is gone."""
        while True:
            wait = 0.0 if self._numbers and not self._is_paused else IDLE
            if select.select([self._requests], [], [], wait)[0]:
                frame = receive(self._requests)
                if frame is None:
                    return
                self._answer(frame)
            elif self._numbers:
                self._advance()

    def _answer(self, frame: Row) -> None:
        """Do what `frame` asks for; requests are answered when their tokens are sampled, other things now."""
        handle: Callable[..., object] = getattr(self, f"on_{frame['do']}")
        try:
            answer: Row = {"value": handle(*frame["with"])}
        except QuintainError as error:
            if "id" not in frame:
                raise
            answer = {"fault": str(error), "class": type(error).__name__}
        if "id" in frame:
            self._send({"id": frame["id"], **answer})

    def on_open(self, folder: str, settings: Row, policy: str) -> Row:
        """Load the model in `folder` and say what the engine can do."""
        # What takes long to import is imported in the process that needs it, not in its keeper.
        from quintain.engines.build import build_engine
        from quintain.engines.settings import EngineSettings
        from quintain.engines.wire import from_row

        engine = self._engine = build_engine(from_row(EngineSettings, settings), folder, policy=policy)
        return {
            "max_length": engine.max_length,
            "vocabulary": engine.vocabulary,
            "capabilities": sorted(engine.capabilities),
        }

    def on_submit(self, number: int, row: Row) -> None:
        """Take on a request; one that is refused is answered with a failure."""
        from quintain.engines.protocol import Reply, Request
        from quintain.engines.wire import from_row
        from quintain.types import Failure

        request = from_row(Request, row)
        try:
            self.engine.submit(request)
            self._numbers[request.session] = number
        except QuintainError as error:
            failure = Failure(owner="engine", kind="refused", message=str(error))
            self._reply([(number, Reply(session=request.session, result=failure))])

    def on_release(self, session: str) -> None:
        """Forget a session."""
        self.engine.release(session)
        self._numbers.pop(session, None)

    def on_load_weights(self, version: int, folder: str) -> None:
        """Take new weights from a folder."""
        self.engine.load_weights(version, Path(folder))

    def on_pause(self, mode: PauseMode) -> None:
        """Stop sampling; what is aborted is answered before this is."""
        self.engine.pause(mode)
        self._is_paused = True
        self._advance()

    def on_resume(self) -> None:
        """Sample again."""
        self.engine.resume()
        self._is_paused = False

    def on_score(self, token_ids: list[list[int]], temperature: float) -> list[tuple[float, ...]]:
        """Score streams."""
        return self.engine.score(token_ids, temperature)

    def on_fingerprint(self) -> str:
        """Name the weights."""
        return self.engine.fingerprint()

    def on_stats(self) -> Row:
        """Say what was done so far."""
        from quintain.engines.wire import to_row

        return to_row(self.engine.stats())

    @property
    def engine(self) -> Engine:
        """The engine, which `on_open` builds."""
        if self._engine is None:
            raise EngineFault("an engine's process: got a request before it was opened; report this")
        return self._engine

    def _advance(self) -> None:
        """Do a round of work; send what became of it, or now and then a sign of life."""
        replies = self.engine.advance()
        if replies:
            self._reply([(self._numbers.pop(reply.session), reply) for reply in replies])
        elif time.monotonic() - self._spoke > BEAT:
            self._reply([])

    def _reply(self, replies: list[tuple[int, Any]]) -> None:
        """Send numbered replies, and what was done so far."""
        from quintain.engines.wire import to_row

        rows = [[number, to_row(reply)] for number, reply in replies]
        self._send({"replies": rows, "stats": to_row(self.engine.stats())})

    def _send(self, frame: Row) -> None:
        """Write a frame."""
        self._spoke = time.monotonic()
        send(self._replies, frame)


def main() -> None:
    """Have this process kept, take its standard streams for the frames, and serve."""
    Host(*take_streams()).serve()
