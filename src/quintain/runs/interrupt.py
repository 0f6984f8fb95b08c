"""Ctrl-C and SIGTERM end a run between two steps; a second one ends it at once.

A thread hears of signals from the system itself, however busy the main thread is. It breaks off a step that goes on for
long after the first signal, where nothing was learned in it yet, and leaves the process that has not come to its end
soon after the second. A run is never broken off between the weights that a step began with and those that it ends with.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from quintain.errors import INTERRUPTED_EXIT_CODE

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 15.0
"""Seconds after the first signal from which a step is broken off."""
GRACE = 5.0
"""Seconds after the second signal from which the process is left as it stands."""
TICK = 0.1
"""Seconds between two looks at the clock, once there was a signal."""
_END = 0
"""What the thread is told with at the end; no signal has this number."""
_pipes: set[int] = set()
"""Ends of pipes that the system writes signals to."""


class Interruption:
    """While entered, a signal sets `is_asked` and raises `KeyboardInterrupt`; after `defer` only the second raises it.

    So does, `patience` seconds after the first, the first moment in which nothing would be torn. A signal whose
    exception somebody swallowed while the run was set up is not forgotten: `is_asked` stays.
    """

    def __init__(self, *, patience: float = PATIENCE, grace: float = GRACE) -> None:
        self.is_asked = False
        self.is_broken_off = False
        """Whether the step in which the first signal came was broken off."""
        self._patience, self._grace = patience, grace
        self._may_break: Callable[[], bool] | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._thread: threading.Thread | None = None
        self._pipe, self._main = (-1, -1), 0

    def __enter__(self) -> Self:
        """Take over the signals (in the main thread; elsewhere nothing changes)."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
            self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back, and let go of what was asked."""
        self._may_break = None
        if self._thread is not None:
            signal.set_wakeup_fd(-1)
            os.write(self._pipe[1], bytes([_END]))
            self._thread.join(10 * TICK)
            self._thread = None
            self._close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def defer(self, may_break: Callable[[], bool]) -> None:
        """Let the first signal only ask from now on; `may_break` says whether nothing would be torn just now."""
        self._may_break = may_break

    def _ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal, in the main thread between two of its instructions."""
        is_first, self.is_asked = not self.is_asked, True
        if self._may_break is None:
            raise KeyboardInterrupt
        if is_first:
            return
        if self.is_broken_off and not self._may_break():
            self.is_broken_off = False  # an update has begun since; the thread will ask again
            return
        raise KeyboardInterrupt

    def _listen(self) -> None:
        """Let the system write signals to a pipe that a thread reads, unless somebody listens already."""
        self._pipe, self._main = os.pipe(), threading.get_ident()
        os.set_blocking(self._pipe[1], False)
        before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            self._close()
            return
        _pipes.add(self._pipe[1])
        self._thread = threading.Thread(target=self._watch, name="quintain-signals", daemon=True)
        self._thread.start()

    def _close(self) -> None:
        """Close the pipe."""
        _pipes.discard(self._pipe[1])
        for end in self._pipe:
            os.close(end)

    def _watch(self) -> None:
        """Count signals and look at the clock until the end."""
        heard, since = 0, 0.0
        while True:
            ready, _, _ = select.select([self._pipe[0]], [], [], TICK if heard else None)
            numbers = os.read(self._pipe[0], 256) if ready else b""
            if _END in numbers:
                return
            if num := sum(number in SIGNALS for number in numbers):
                since = time.monotonic() if heard < 2 else since
                heard += num
            waited = time.monotonic() - since
            is_long = heard == 1 and not self.is_broken_off and waited > self._patience
            if is_long and self._may_break is not None and self._may_break():
                self.is_broken_off = True
                heard = 0  # the signal that follows is ours
                signal.pthread_kill(self._main, signal.SIGINT)
            elif heard > 1 and waited > self._grace:
                os._exit(INTERRUPTED_EXIT_CODE)


def _forget() -> None:
    """In a forked process: let its signals not be written to the pipe of the one that it came from."""
    with contextlib.suppress(ValueError):  # no main thread: its signals are nobody's
        before = signal.set_wakeup_fd(-1)
        if before not in _pipes:
            signal.set_wakeup_fd(before)


os.register_at_fork(after_in_child=_forget)
