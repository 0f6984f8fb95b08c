"""Says what each live episode waits on, when one has waited for long: nothing hangs in silence.

Every wait of a rollout has an owner and a deadline of its own (`Limits`); this is for the time until then.
It only looks and speaks, from a thread of its own, so that it works while the loop is stuck.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from quintain.rollout.episode import LiveEpisode

MOST_NAMED = 20
"""Episodes that are named in one message; more are counted."""
_log = logging.getLogger("quintain.rollout")


class Watchdog:
    """Looks at the episodes that `live` returns every `seconds`; use it as a context manager."""

    def __init__(self, live: Callable[[], Sequence[LiveEpisode]], *, seconds: float) -> None:
        self._live = live
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="quintain-watchdog", daemon=True)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join(1.0)

    def _watch(self) -> None:
        """Look until it is over."""
        while not self._over.wait(self._seconds):
            if text := told(self._live(), time.monotonic(), self._seconds):
                _log.warning("%s", text)


def told(episodes: Sequence[LiveEpisode], now: float, seconds: float) -> str:
    """Return what those of `episodes` wait on that have waited for `seconds` at the time `now`; "" for none.

    Example: ``2 of 8 episodes wait for 60 s or more: 2 for a reply of the engine; 0:guess/train/3/1 in turn 2 for a
    reply of the engine, 64 s; …``
    """
    waiting = [episode for episode in episodes if now - episode.wait.since >= seconds]
    if not waiting:
        return ""
    waiting.sort(key=lambda episode: episode.wait.since)
    counts = Counter(episode.wait.owner for episode in waiting)
    owners = ", ".join(f"{num} for {owner}" for owner, num in counts.most_common())
    named = [
        f"{episode.request.group}/{episode.request.index} in turn {len(episode.turns)} for {episode.wait.owner}, "
        f"{now - episode.wait.since:.0f} s"
        for episode in waiting[:MOST_NAMED]
    ]
    more = f"; and {len(waiting) - MOST_NAMED} more" if len(waiting) > MOST_NAMED else ""
    return (
        f"{len(waiting)} of {len(episodes)} episodes wait for {seconds:g} s or more: {owners}; "
        f"{'; '.join(named)}{more}"
    )
