"""WebSockets (RFC 6455), as far as two programs that exchange JSON texts need them: client side and server side.

Texts may come in fragments and with pings between them; no extension and no compression is negotiated. The one rule:
every read has a deadline and a bound, and whatever breaks the protocol ends the connection with a `SocketTrouble`.
"""

import base64
import hashlib
import http.client
import io
import os
import socket
import struct
import time
from contextlib import suppress
from urllib.parse import urlsplit

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MOST_BYTES = 16 << 20
CONTINUES, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, TOO_BIG, BROKEN_PROTOCOL = 1000, 1009, 1002


class SocketTrouble(Exception):
    """A connection that failed: ``SocketTrouble("closed", "a connection that ended")``."""

    def __init__(self, kind: str, got: str) -> None:
        """Hold what kind of trouble it is, for counting, and what came, for people."""
        super().__init__(kind, got)
        self.kind = kind
        self.got = got


class WebSocket:
    """An open connection; make one with `connect`, or with `upgraded` in a server."""

    def __init__(self, channel: socket.socket, source: io.BufferedReader, *, is_client: bool) -> None:
        """Speak over `channel`, of which `source` reads; a client masks what it sends."""
        self._channel, self._source, self._is_client = channel, source, is_client
        self._is_open = True

    def send(self, text: str) -> None:
        """Send a text.

        Raises:
            SocketTrouble: the connection is gone.
        """
        self._send(TEXT, text.encode())

    def receive(self, *, deadline: float | None = None) -> str | None:
        """Return the next text, None when the other side has closed; pings are answered meanwhile.

        Raises:
            SocketTrouble: nothing came within `deadline` seconds, the connection broke, or it is no WebSocket talk.
        """
        ends = None if deadline is None else time.monotonic() + deadline
        parts: list[bytes] = []
        size = 0
        while True:
            is_final, kind, data = self._frame(ends)
            if kind == CLOSE:
                self.close()
                return None
            if kind == PING:
                self._send(PONG, data)
            if kind in (PING, PONG):
                continue
            if kind == BINARY or (kind == CONTINUES) != bool(parts):
                raise self._broken("a frame out of order, or not a text")
            parts.append(data)
            size += len(data)
            if size > MOST_BYTES:
                raise self._broken(f"more than {MOST_BYTES} bytes", TOO_BIG)
            if is_final:
                try:
                    return b"".join(parts).decode()
                except UnicodeDecodeError as error:
                    raise self._broken("a text that is not UTF-8") from error

    def close(self, code: int = NORMAL) -> None:
        """Say goodbye and close; may be called again."""
        if self._is_open:
            self._is_open = False
            with suppress(OSError):  # it is gone already
                self._channel.settimeout(1.0)
                self._channel.sendall(self._framed(CLOSE, struct.pack("!H", code)))
        self.abort()

    def abort(self) -> None:
        """Close without a word, from any thread; whoever reads gets a `SocketTrouble`."""
        self._is_open = False
        with suppress(OSError):  # it is shut already
            self._channel.shutdown(socket.SHUT_RDWR)
        with suppress(OSError, ValueError):
            self._source.close()
        self._channel.close()

    def _frame(self, ends: float | None) -> tuple[bool, int, bytes]:
        """Return the next frame: whether it is the last of its message, its kind, its data."""
        first, second = self._read(2, ends)
        is_final, kind, length = bool(first & 0x80), first & 0x0F, second & 0x7F
        is_masked = bool(second & 0x80)
        if first & 0x70 or is_masked == self._is_client or kind not in (0, 1, 2, 8, 9, 10):
            raise self._broken("no WebSocket frame")
        if length == 126:
            (length,) = struct.unpack("!H", self._read(2, ends))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._read(8, ends))
        if kind >= CLOSE and (length > 125 or not is_final):
            raise self._broken("a control frame that is too long")
        if length > MOST_BYTES:
            raise self._broken(f"more than {MOST_BYTES} bytes", TOO_BIG)
        mask = self._read(4, ends) if is_masked else b""
        return is_final, kind, _masked(self._read(length, ends), mask)

    def _read(self, count: int, ends: float | None) -> bytes:
        """Return `count` bytes."""
        data = b""
        try:
            while len(data) < count:
                left = None if ends is None else ends - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._channel.settimeout(left)
                piece = self._source.read1(min(count - len(data), 1 << 20))
                if not piece:
                    raise SocketTrouble("closed", "a connection that ended")
                data += piece
        except TimeoutError as error:
            self.abort()
            raise SocketTrouble("timeout", "no answer in time") from error
        except (OSError, ValueError) as error:
            self.abort()
            raise SocketTrouble("closed", f"a connection that broke ({error})") from error
        return data

    def _send(self, kind: int, data: bytes) -> None:
        """Send one frame."""
        try:
            self._channel.sendall(self._framed(kind, data))
        except OSError as error:
            self.abort()
            raise SocketTrouble("closed", f"a connection that broke ({error})") from error

    def _framed(self, kind: int, data: bytes) -> bytes:
        """Return `data` as one frame."""
        bit = 0x80 if self._is_client else 0
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, bit | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, bit | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, bit | 127, size)
        if not self._is_client:
            return head + data
        mask = os.urandom(4)
        return head + mask + _masked(data, mask)

    def _broken(self, got: str, code: int = BROKEN_PROTOCOL) -> SocketTrouble:
        """Close the connection and return why."""
        self.close(code)
        return SocketTrouble("protocol", got)


def connect(url: str, *, deadline: float, key: str = "") -> WebSocket:
    """Open a WebSocket to `url`, an http(s) address; a `key` is sent as a bearer token.

    Raises:
        SocketTrouble: there is no WebSocket there, or not within `deadline` seconds.
    """
    parts = urlsplit(url)
    dial = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = dial(parts.hostname or "", parts.port, timeout=deadline)
    nonce = base64.b64encode(os.urandom(16)).decode()
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": nonce,
        "Sec-WebSocket-Version": "13",
    }
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.connect()
        source = connection.sock.makefile("rb")
    except OSError as error:
        connection.close()
        raise _unreached(error) from error
    try:
        connection.request("GET", parts.path or "/", headers=headers)
        _check_handshake(source, nonce)
    except (OSError, http.client.HTTPException, SocketTrouble) as error:
        source.close()
        connection.close()
        raise (error if isinstance(error, SocketTrouble) else _unreached(error)) from error
    return WebSocket(connection.sock, source, is_client=True)


def _check_handshake(source: io.BufferedReader, nonce: str) -> None:
    """Read the answer to a request for a WebSocket.

    Raises:
        SocketTrouble: it is not granted.
        http.client.HTTPException: it is no HTTP.
    """
    status = _status(source.readline(1 << 12))
    answer = http.client.parse_headers(source)
    if status != 101:
        kind = "unavailable" if status >= 500 else "refused"
        raise SocketTrouble(kind, f"HTTP status {status} instead of a WebSocket")
    if answer.get("Sec-WebSocket-Accept") != accepted(nonce):
        raise SocketTrouble("protocol", "a handshake that is no WebSocket's")


def _unreached(error: Exception) -> SocketTrouble:
    """Return `error` as a trouble."""
    kind = "timeout" if isinstance(error, TimeoutError) else "unreachable"
    return SocketTrouble(kind, f"{type(error).__name__}: {error}")


def _status(line: bytes) -> int:
    """Return the status in the first line of an HTTP answer.

    Raises:
        http.client.HTTPException: it is none.
    """
    words = line.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise http.client.BadStatusLine(line[:60].decode("latin-1") or "nothing")
    return int(words[1])


def accepted(nonce: str) -> str:
    """Return what a server answers to the client's key `nonce`."""
    return base64.b64encode(hashlib.sha1(f"{nonce}{GUID}".encode(), usedforsecurity=False).digest()).decode()


def _masked(data: bytes, mask: bytes) -> bytes:
    """Return `data` with the bytes of `mask` put over it, over and over."""
    if not mask or not data:
        return data
    length = len(data)
    whole = mask * (length // 4) + mask[: length % 4]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(length, "big")
