"""An event loop in a daemon thread of its own, for packages that can only be asked asynchronously.

Like ``anyio.from_thread.start_blocking_portal``, but its end has a deadline: whatever a package leaves running keeps
neither the caller nor the interpreter waiting.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

import anyio
from anyio.from_thread import BlockingPortal

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
STARTING = 30.0
"""Seconds that the thread may take to start on a busy machine."""


class LoopThread:
    """A thread with an event loop: ``LoopThread("quintain-mcp").start(client.list_tools).result(5.0)``."""

    def __init__(self, name: str) -> None:
        """Start the thread and its loop."""
        ready: Future[tuple[BlockingPortal, asyncio.AbstractEventLoop, anyio.CancelScope]] = Future()
        self._thread = threading.Thread(target=anyio.run, args=(_live, ready), name=name, daemon=True)
        self._thread.start()
        self._portal, self._loop, self._scope = ready.result(STARTING)

    def start(self, call: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> "Future[T]":
        """Return the future of ``call(*args)``, which runs in the loop; cancelling it cancels the call.

        It returns when the loop has taken the call, which a call that never awaits holds up.

        Raises:
            RuntimeError: the loop was closed.
        """
        return self._portal.start_task_soon(call, *args)

    def close(self, deadline: float) -> bool:
        """Cancel what still runs and end the thread; return whether it ended within `deadline` seconds."""
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._scope.cancel)
        self._thread.join(deadline)
        return not self._thread.is_alive()


async def _live(ready: "Future[tuple[BlockingPortal, asyncio.AbstractEventLoop, anyio.CancelScope]]") -> None:
    """Run what is asked of the loop until it is closed."""
    with anyio.CancelScope() as scope:
        async with BlockingPortal() as portal:
            ready.set_result((portal, asyncio.get_running_loop(), scope))
            await portal.sleep_until_stopped()
