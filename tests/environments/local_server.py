"""A server that a test starts on this machine, and ends."""

import socket
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def serving(
    command: Callable[[int], Sequence[str]], *, patience: float, **given: Any
) -> Generator[tuple[int, subprocess.Popen[Any]]]:
    """The port and the process of the `command` for a free port, once it listens; `given` is for `Popen`.

    It must listen within `patience` seconds: a busy machine takes long to import a package.
    """
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = int(door.getsockname()[1])
    process: subprocess.Popen[Any] = subprocess.Popen(command(port), **given)
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "the server does not start"
                time.sleep(0.05)
        yield port, process
    finally:
        process.kill()
        process.wait(10)
