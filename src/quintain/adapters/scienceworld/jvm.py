"""Java machines that ScienceWorld's simulator runs in: each is lent to one environment at a time, counted and closed.

Starting one takes seconds and 440 MB, so a machine that is given back waits for the next borrower for a while. None
outlives this process, and a forked child never touches those of its parent.
"""

import atexit
import contextlib
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from quintain.environments.extras import extra_module, extra_program
from quintain.environments.tools import OwnedFault

FEATURE = "the environment scienceworld"
IDLE = 60.0
"""Seconds after which a machine that nobody borrows is closed."""
MAX_IDLE = 2
"""Machines that wait for a borrower; more are closed at once."""
PATIENCE = 10.0
"""Seconds that a closed machine gets to end by itself."""


class MachineFault(OwnedFault):
    """The simulator's Java machine ended, or refused a call."""

    kind = "java"


class Machine:
    """A running simulator.

    Raises:
        MissingExtra: the package or Java is missing.
        MachineFault: it does not start.
    """

    def __init__(self) -> None:
        """Start Java with the package's simulator."""
        package = extra_module("scienceworld", package="scienceworld", extra="scienceworld", feature=FEATURE)
        extra_program(("java",), package="default-jre-headless", feature=FEATURE)
        logging.getLogger("py4j").addHandler(logging.NullHandler())  # what goes wrong is told as a fault
        self.owner = os.getpid()
        self.idle_since = time.monotonic()
        self.is_broken = False
        try:
            self.env: Any = package.ScienceWorldEnv("")
        except (OSError, ValueError, *_bridge_errors()) as error:
            # Without a port on its first line Java has said why it ends.
            raise MachineFault(
                f"Java for {FEATURE}: got {error or type(error).__name__}; see whether `java -version` works"
            ) from error
        self.process: subprocess.Popen[bytes] = self.env._gateway.java_process
        # Listing all valid actions takes ten times as long as the rest of a step: only when they are asked for.
        self.valid_actions: Callable[[], list[str]] = self.env.get_valid_action_object_combinations
        self.env.get_valid_action_object_combinations = list
        client = self.env._gateway._gateway_client
        client._create_connection = partial(_connect, client)

    @property
    def is_alive(self) -> bool:
        """Whether it can be spoken to, from this process."""
        return not self.is_broken and self.owner == os.getpid() and self.process.poll() is None

    def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer to `call`, a method of the package's environment.

        Raises:
            MachineFault: there is none.
        """
        try:
            return call(*arguments)
        except (OSError, *_bridge_errors()) as error:
            # Its end may not have been told yet.
            self.is_broken = True
            told = " ".join(str(error).split())[:200] or type(error).__name__
            raise MachineFault(f"ScienceWorld's simulator: got {told}; start the episode again") from error

    def close(self) -> None:
        """End it; may be called twice, from any thread, and in the middle of a call."""
        if self.owner != os.getpid():
            return
        # First the process: whoever waits for its answer gets an error. Killed at once it would leave a file behind.
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE)
        # Not the package's close(): it would open a connection to say goodbye.
        client = self.env._gateway._gateway_client
        client.close()
        client.is_connected = False
        self.env._gateway.shutdown_callback_server()
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        # The package's own threads close what Java wrote to.
        deadline = time.monotonic() + PATIENCE
        while not self.process.stdout.closed and time.monotonic() < deadline:
            time.sleep(0.01)
        self.env._obj_tree_tempdir.cleanup()


_idle: list[Machine] = []
_lent: set[Machine] = set()
_lock = threading.Lock()
_reaper: threading.Thread | None = None


def borrow() -> Machine:
    """Return a machine for the borrower alone, started if none waits."""
    with _lock:
        while _idle:
            machine = _idle.pop()
            if machine.is_alive:
                _lent.add(machine)
                return machine
            machine.close()
    machine = Machine()
    with _lock:
        _lent.add(machine)
    return machine


def give_back(machine: Machine) -> None:
    """Let `machine` wait for the next borrower; one that has ended, or is one too many, is closed."""
    global _reaper
    with _lock:
        _lent.discard(machine)
        if machine.is_alive and len(_idle) < MAX_IDLE:
            machine.idle_since = time.monotonic()
            _idle.append(machine)
            if _reaper is None or not _reaper.is_alive():
                _reaper = threading.Thread(target=_reap, name="quintain-scienceworld", daemon=True)
                _reaper.start()
            return
    machine.close()


def count() -> int:
    """Return how many machines of this process are running."""
    with _lock:
        return sum(machine.is_alive for machine in (*_idle, *_lent))


def close_idle() -> None:
    """Close the machines that nobody has borrowed."""
    with _lock:
        found = tuple(_idle)
        _idle.clear()
    for machine in found:
        machine.close()


def close_machines() -> None:
    """Close every machine of this process."""
    with _lock:
        found = (*_idle, *_lent)
        _idle.clear()
        _lent.clear()
    for machine in found:
        machine.close()


def _reap() -> None:
    """Close machines that nobody has borrowed for a while; end when there is none left to watch."""
    global _reaper
    while True:
        with _lock:
            late = [each for each in _idle if time.monotonic() - each.idle_since > IDLE]
            for machine in late:
                _idle.remove(machine)
            is_last = not _idle and not _lent
            if is_last:
                _reaper = None
        for machine in late:
            machine.close()
        if is_last:
            return
        time.sleep(1.0)


def _connect(client: Any) -> Any:
    """Return a new connection of `client`, the bridge's; a socket that finds nobody is closed, which it forgets."""
    bridge = extra_module("py4j.java_gateway", package="scienceworld", extra="scienceworld", feature=FEATURE)
    connection = bridge.GatewayConnection(client.gateway_parameters, client.gateway_property)
    try:
        connection.start()
    except _bridge_errors():
        connection.socket.close()
        raise
    return connection


def _bridge_errors() -> tuple[type[Exception], ...]:
    """Return what the bridge to Java raises."""
    protocol = extra_module("py4j.protocol", package="scienceworld", extra="scienceworld", feature=FEATURE)
    return (protocol.Py4JError,)


atexit.register(close_machines)
