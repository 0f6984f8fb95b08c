"""What every engine keeps of its requests: which have no reply, which were broken off, and counts of what it did."""

from collections.abc import Iterable
from typing import Any

from quintain.engines.protocol import ABORTED, EngineStats, Reply
from quintain.types import Completion, Failure


class Tally:
    """The requests of an engine and its counts: ``tally.submit(name); tally.answer(replies); tally.stats()``."""

    def __init__(self) -> None:
        self.unanswered: set[str] = set()
        """sessions with a request that has no reply"""
        self.aborted: list[Reply] = []
        """replies to requests that were broken off, which nobody has taken yet"""
        self._counts: dict[str, Any] = {}

    def add(self, **more: float) -> None:
        """Add to what is counted, by the names of `EngineStats`."""
        for name, number in more.items():
            self._counts[name] = self._counts.get(name, 0) + number

    def submit(self, session: str) -> None:
        """Note a request of `session`."""
        self.unanswered.add(session)
        self.add(num_submitted=1)

    def abort(self, sessions: Iterable[str]) -> None:
        """Note that the requests of `sessions` were broken off."""
        self.aborted += [Reply(session=session, result=ABORTED) for session in sessions]

    def answer(self, replies: Iterable[Reply]) -> list[Reply]:
        """Return `replies` behind those to requests that were broken off, and count them."""
        found, self.aborted = [*self.aborted, *replies], []
        for reply in found:
            self.unanswered.remove(reply.session)
        self.add(
            num_failed=sum(isinstance(reply.result, Failure) for reply in found),
            num_finished=sum(isinstance(reply.result, Completion) for reply in found),
        )
        return found

    def release(self, session: str) -> None:
        """Forget the request of `session`, if it has one."""
        self.aborted = [reply for reply in self.aborted if reply.session != session]
        if session in self.unanswered:
            self.unanswered.remove(session)
            self.add(num_released=1)

    def stats(self, **now: Any) -> EngineStats:
        """Return what was counted, with what the engine is doing `now`."""
        return EngineStats(**{**self._counts, **now})
