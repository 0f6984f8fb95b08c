"""How long an engine may say nothing, before its requests are lost."""

from __future__ import annotations

import time
from collections.abc import Mapping

from quintain.engines.protocol import Engine
from quintain.errors import EngineFault


class Patience:
    """Bounds how long `engine` may say nothing.

    An engine that samples a token per round answers within as many rounds as it may sample tokens; one that is
    asked across a network has `seconds`. When both have passed without any reply, the requests are lost.
    """

    def __init__(self, engine: Engine, seconds: float) -> None:
        self.name = f"the engine {type(engine).__name__}"
        self._seconds = seconds
        self._num_silent = 0
        self._heard = time.monotonic()

    def listen(self, waiting: Mapping[str, int], *, is_reply: bool) -> None:
        """Count a round in which there was a reply or none; `waiting` are the sessions that wait and their most tokens.

        Raises:
            EngineFault: there were too many rounds without a reply over too long a time.
        """
        now = time.monotonic()
        if is_reply or not waiting:
            self._num_silent, self._heard = 0, now
            return
        self._num_silent += 1
        if self._num_silent > sum(waiting.values()) and now - self._heard > self._seconds:
            raise EngineFault(
                f"{len(waiting)} requests to {self.name}: got no reply in {now - self._heard:.0f} s, the "
                f"first for session {min(waiting)!r}; restart it, then resume"
            )
