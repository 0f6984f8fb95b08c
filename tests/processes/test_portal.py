import threading
import time
from concurrent.futures import CancelledError

import anyio
import pytest

from quintain.processes.portal import LoopThread


async def double(number: int) -> int:
    await anyio.sleep(0)
    return 2 * number


def test_calls_run_in_the_loop_and_can_be_cancelled() -> None:
    loop = LoopThread("quintain-test")
    assert loop.start(double, 21).result(10) == 42
    hung = loop.start(anyio.sleep_forever)
    assert hung.cancel()
    waiting = loop.start(anyio.sleep_forever)
    assert loop.close(10) and loop.close(10)
    with pytest.raises(CancelledError):
        waiting.result(10)
    with pytest.raises(RuntimeError):
        loop.start(double, 1)
    assert "quintain-test" not in [thread.name for thread in threading.enumerate()]


def test_what_cannot_be_ended_is_left_alone_at_the_deadline() -> None:
    released, began = threading.Event(), threading.Event()

    async def stubborn() -> None:
        began.set()
        released.wait(60)

    loop = LoopThread("quintain-test")
    loop.start(stubborn)
    assert began.wait(10)
    started = time.monotonic()
    assert not loop.close(0.1) and time.monotonic() - started < 30
    released.set()
    assert loop.close(10)
