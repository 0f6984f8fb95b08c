"""Several users of one engine, who do not wait for each other: each gets the replies to its own requests only.

A rollout that goes on over an update of the weights has requests in the engine while a canary, an evaluation or a
branch is sampled from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quintain.engines.protocol import Engine, Reply, Request

if TYPE_CHECKING:
    Boxes = dict[str, list[Reply]]


class EngineClient:
    """`engine` as one of its users sees it; `new_client` makes the desk of another.

    Whoever advances the engine advances it for all; what comes for another desk is kept there. Names of sessions must
    differ between desks. Everything that is not here is the engine's own.
    """

    def __init__(self, engine: Engine, boxes: Boxes | None = None) -> None:
        self._engine = engine
        self._boxes: Boxes = {} if boxes is None else boxes
        """session with an unanswered request -> where its reply is put"""
        self._box: list[Reply] = []

    def new_client(self) -> EngineClient:
        """Return another desk of the same engine."""
        return EngineClient(self._engine, self._boxes)

    def submit(self, request: Request) -> None:
        """See `Engine.submit`."""
        self._engine.submit(request)
        self._boxes[request.session] = self._box

    def advance(self) -> list[Reply]:
        """See `Engine.advance`; replies that another desk's round brought come first, without a round of their own."""
        if not self._box:
            for reply in self._engine.advance():
                self._boxes.pop(reply.session, self._box).append(reply)
        replies = self._box.copy()
        self._box.clear()
        return replies

    def release(self, session: str) -> None:
        """See `Engine.release`."""
        self._boxes.pop(session, None)
        self._box[:] = [reply for reply in self._box if reply.session != session]
        self._engine.release(session)

    def __getattr__(self, name: str) -> Any:
        """Return what the engine has."""
        return getattr(self._engine, name)
