"""Says what each live episode waits on, when one has waited for long: nothing hangs in silence.

Every wait of a rollout has an owner and a deadline of its own (`Limits`); this is for the time until then.
It only looks and speaks, from a thread of its own, so that it works while the loop is stuck. A machine that is slow
is told of once: the next word is of a wait twice as long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from quintain.rollout.episode import LiveEpisode

_log = logging.getLogger("quintain.rollout")


@dataclass(slots=True)
class Patience:
    """The longest wait that a rollout has told of."""

    told: float = 0.0
    """seconds"""


class Watchdog:
    """Looks at the episodes that `live` returns every `seconds`; use it as a context manager.

    Args:
        live: returns the episodes that wait for something.
        seconds: shorter waits are not told of.
        patience: waits less than twice as long as the longest that it has told of are not told of, either.
    """

    def __init__(
        self, live: Callable[[], Sequence[LiveEpisode]], *, seconds: float, patience: Patience | None = None
    ) -> None:
        self._live = live
        self._seconds = seconds
        self._patience = patience or Patience()
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
            if text := describe_waits(self._live(), time.monotonic(), self._seconds, self._patience):
                _log.warning("%s", text)


def describe_waits(episodes: Sequence[LiveEpisode], now: float, seconds: float, patience: Patience) -> str:
    """Return what those of `episodes` wait on that have waited for `seconds` at the time `now`, and renew `patience`.

    It is "" where none has, or none twice as long as was told before. Of those who wait for the same, the one that has
    waited longest is named.

    Example: ``8 of 64 episodes wait for 60 s or more: 8 for a reply of the engine Local, the longest (task
    0:guess/train/3, episode 1, turn 2) for 64 s``
    """
    waits = [(now - episode.wait.since, episode) for episode in episodes]
    waits = sorted((wait for wait in waits if wait[0] >= seconds), key=lambda wait: -wait[0])
    if not waits or waits[0][0] < 2 * patience.told:
        return ""
    patience.told = waits[0][0]
    counts = Counter(episode.wait.owner for _, episode in waits)
    longest = {episode.wait.owner: (waited, episode) for waited, episode in reversed(waits)}
    owners = "; ".join(
        f"{num} for {owner}, the longest (task {longest[owner][1].request.group}, episode "
        f"{longest[owner][1].request.index}, turn {len(longest[owner][1].turns)}) for {longest[owner][0]:.0f} s"
        for owner, num in counts.most_common()
    )
    return f"{len(waits)} of {len(episodes)} episodes wait for {seconds:g} s or more: {owners}"
