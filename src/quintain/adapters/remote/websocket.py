"""A WebSocket to a server that may be slow, down or broken, behind plain calls with deadlines and faults with a kind.

The package ``websockets`` speaks the protocol. Texts only; no compression, no proxy, and no redirect, since it would
carry the key to another place.
"""

import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quintain.environments.extras import extra_module

if TYPE_CHECKING:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import ClientConnection

MAX_BYTES = 16 << 20
CLOSE_SECONDS = 1.0
"""How long the end of a connection may take."""
TOO_BIG = 1009
PROTOCOL_CODES = frozenset({1002, 1003, 1007, TOO_BIG})
"""Codes with which we end a connection over which something came that breaks the protocol."""


class SocketTrouble(Exception):
    """A connection that failed: ``SocketTrouble("closed", "a connection that ended")``."""

    def __init__(self, kind: str, got: str) -> None:
        """Hold what kind of trouble it is, for counting, and what came, for people."""
        super().__init__(kind, got)
        self.kind = kind
        self.got = got


class WebSocket:
    """An open connection: ``connect("http://127.0.0.1:8000/ws", deadline=20.0)``."""

    def __init__(self, connection: "ClientConnection") -> None:
        """Speak over `connection`."""
        self._connection = connection

    def send(self, text: str) -> None:
        """Send a text, within the deadline that `connect` was given.

        Where the server has closed in order, nothing is sent: `receive` then returns the last it said, such as why.

        Raises:
            SocketTrouble: the connection broke, or the server does not read.
        """
        from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

        try:
            self._connection.send(text)
        except ConnectionClosedOK:
            return
        except ConnectionClosed as error:
            raise _trouble(error) from error

    def receive(self, *, deadline: float) -> str | None:
        """Return the next text, None when the other side has closed.

        Raises:
            SocketTrouble: nothing came within `deadline` seconds, the connection broke, or it is no WebSocket talk.
        """
        from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

        try:
            text = self._connection.recv(timeout=deadline)
        except TimeoutError as error:
            self.abort()
            # A server that broke the protocol and then does not hang up is not merely late.
            broken = _trouble(self._connection.protocol.close_exc)
            raise (
                broken if broken.kind == "protocol" else SocketTrouble("timeout", "no answer in time")
            ) from error
        except ConnectionClosedOK:
            return None
        except ConnectionClosed as error:
            raise _trouble(error) from error
        if isinstance(text, bytes):
            self.abort()
            raise SocketTrouble("protocol", "a message that is not a text")
        return text

    def abort(self) -> None:
        """Close at once, from any thread, and again if you like; whoever waits gets a `SocketTrouble`."""
        with suppress(OSError):  # it is shut already
            self._connection.socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def connect(url: str, *, deadline: float, key: str = "") -> WebSocket:
    """Open a WebSocket to `url`, an http(s) address; a `key` is sent as a bearer token.

    Raises:
        MissingExtra: the package websockets is not installed.
        SocketTrouble: there is no WebSocket there, or not within `deadline` seconds.
    """
    extra_module("websockets", package="websockets", extra="openenv", feature="the environment openenv")
    from websockets.exceptions import InvalidMessage, InvalidStatus, WebSocketException
    from websockets.sync.client import connect as dial

    ends = time.monotonic() + deadline
    try:
        opened = dial(
            url.replace("http", "ws", 1),
            sock=_bare_socket(url, deadline),
            additional_headers={"Authorization": f"Bearer {key}"} if key else None,
            compression=None,
            proxy=None,
            open_timeout=max(0.001, ends - time.monotonic()),
            close_timeout=CLOSE_SECONDS,
            ping_interval=None,
            max_size=MAX_BYTES,
        )
    except TimeoutError as error:
        raise SocketTrouble("timeout", f"{type(error).__name__}: {error}") from error
    except (OSError, InvalidMessage) as error:
        raise SocketTrouble("unreachable", f"{type(error).__name__}: {error}") from error
    except (WebSocketException, ValueError) as error:  # the latter for a redirect, since the socket is ours
        refusals = [each for each in (error, error.__context__) if isinstance(each, InvalidStatus)]
        if refusals:
            status = refusals[0].response.status_code
            kind = "unavailable" if status >= 500 else "refused"
            raise SocketTrouble(kind, f"HTTP status {status} instead of a WebSocket") from error
        raise SocketTrouble("protocol", f"a handshake that is no WebSocket's ({error})") from error
    return WebSocket(ExitStack().enter_context(opened))  # entered, it may be used without a block


def _bare_socket(url: str, deadline: float) -> socket.socket:
    """Return a socket to the host of `url`; the kernel has the deadline for sending, which the package has not."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    bare = socket.create_connection((parts.hostname or "", port), timeout=deadline)
    bare.settimeout(None)
    seconds, rest = divmod(deadline, 1)
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(rest * 1e6)))
    return bare


def _trouble(error: "ConnectionClosed") -> SocketTrouble:
    """Return why a connection ended."""
    if isinstance(error.__cause__, BlockingIOError):
        return SocketTrouble("timeout", "a server that does not read")
    if isinstance(error.__cause__, UnicodeDecodeError):  # of a server that hung up before it could be told so
        return SocketTrouble("protocol", f"a text that is not UTF-8 ({error.__cause__})")
    code = None if error.sent is None or error.rcvd_then_sent else error.sent.code
    if code == TOO_BIG:
        return SocketTrouble("protocol", f"more than {MAX_BYTES} bytes")
    if code in PROTOCOL_CODES:
        return SocketTrouble("protocol", f"no WebSocket frame ({error})")
    return SocketTrouble("closed", f"a connection that ended ({error})")
