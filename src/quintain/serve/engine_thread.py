"""One engine for callers in other threads: they ask, and whoever owns the engine works for all of them at once.

Engines are not made for several threads. Requests wait in a queue until the owner's next round, and join those that
are being sampled (continuous batching).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from quintain.engines.patience import Patience
from quintain.engines.protocol import Engine, Request
from quintain.errors import QuintainError
from quintain.types import Completion, Failure

Answered = Future[Completion | Failure]
CLOSED = "closed"
"""Kind of the failure of a request that nobody works on any more."""


class EngineThread:
    """Hands requests of any thread to `engine`: ``pump.ask(request).result(60)`` there, ``pump.work()`` here.

    Args:
        engine: used by the thread that calls `work` alone.
        patience: seconds without any reply after which requests are lost.
    """

    def __init__(self, engine: Engine, *, patience: float = 600.0) -> None:
        self.engine = engine
        self.bell = threading.Event()
        """set when there is something to do"""
        self.policy, self.max_length = engine.policy, engine.max_length
        self.capabilities = engine.capabilities
        self._inbox: SimpleQueue[tuple[Request, Answered] | str] = SimpleQueue()
        self._open: dict[str, tuple[Request, Answered]] = {}
        self._patience = Patience(engine, patience)

    @property
    def version(self) -> int:
        """Version of the weights that is served now."""
        return self.engine.policy_version

    def ask(self, request: Request) -> Answered:
        """Return what will be the answer to `request`; may be called from any thread."""
        answer = Answered()
        self._inbox.put((request, answer))
        self.bell.set()
        return answer

    def release(self, session: str) -> None:
        """Let the engine forget `session` and drop what it works on for it; may be called from any thread."""
        self._inbox.put(session)
        self.bell.set()

    def work(self) -> bool:
        """Take on what came, do one round, and answer what became ready; return whether there is more to do.

        Raises:
            EngineFault: the engine says nothing for too long, or fails as a whole.
        """
        self.bell.clear()
        self._take_on()
        if not self._open:
            return False
        replies = self.engine.advance()
        for reply in replies:
            if asked := self._open.pop(reply.session, None):
                asked[1].set_result(reply.result)
        waiting = {name: request.sampling.max_tokens for name, (request, _) in self._open.items()}
        self._patience.listen({} if replies else waiting, is_reply=bool(replies))
        return bool(self._open)

    def wait(self, seconds: float) -> None:
        """Wait until there is something to do, for at most `seconds`."""
        self.bell.wait(seconds)

    def give_up(self, why: str) -> None:
        """Answer everybody who waits with a failure, and let the engine forget what it works on."""
        self._take_on()
        for session, (_, answer) in self._open.items():
            self.engine.release(session)
            answer.set_result(Failure(owner="engine", kind=CLOSED, message=why))
        self._open.clear()

    def _take_on(self) -> None:
        while True:
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(item, str):
                self.engine.release(item)
                if dropped := self._open.pop(item, None):
                    dropped[1].set_result(
                        Failure(owner="engine", kind="released", message="the episode is over")
                    )
                continue
            request, answer = item
            try:
                self.engine.submit(request)
            except QuintainError as error:
                answer.set_result(Failure(owner="engine", kind="refused", message=str(error)))
            else:
                self._open[request.session] = item
