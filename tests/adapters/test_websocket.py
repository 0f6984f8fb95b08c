"""Our WebSocket client against servers that are right, wrong, slow, or none."""

import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve
from websockets.utils import accept_key

from quintain.adapters.remote import websocket
from quintain.adapters.remote.websocket import SocketTrouble, WebSocket, connect
from quintain.errors import MissingExtra


def echo(connection: ServerConnection) -> None:
    for text in connection:
        connection.send(text)


@contextmanager
def answering(handler: Callable[[ServerConnection], None]) -> Generator[str]:
    """The address of a server each of whose connections `handler` has."""
    with serve(handler, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}/ws"
        finally:
            server.shutdown()
            thread.join(10)


@contextmanager
def raw(answer: bytes, *, shakes_hands: bool = False, hangs_up: bool = False) -> Generator[str]:
    """The address of a server that sends `answer` to all who come, after a right handshake where it shakes hands."""
    door = socket.create_server(("127.0.0.1", 0))
    released = threading.Event()

    def work() -> None:
        with suppress(OSError):
            channel, _ = door.accept()
            with channel:
                asked = channel.recv(10_000).decode()
                found = re.search(r"Sec-WebSocket-Key: (\S+)", asked)
                assert found is not None
                hand = (
                    "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    f"Sec-WebSocket-Accept: {accept_key(found[1])}\r\n\r\n"
                )
                channel.sendall((hand.encode() if shakes_hands else b"") + answer)
                if shakes_hands and not hangs_up:
                    released.wait(10)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}/ws"
    finally:
        released.set()
        door.close()
        thread.join(10)


@pytest.fixture
def pair() -> Iterator[WebSocket]:
    with answering(echo) as url:
        client = connect(url, deadline=10)
        yield client
        client.abort()


def wait_for_the_end(client: WebSocket) -> None:
    """Wait until the package behind `client` knows that the connection ended."""
    client._connection.recv_events_thread.join(10)  # pyright: ignore[reportPrivateUsage]


def kind_of(attempt: Callable[[], Any]) -> str:
    with pytest.raises(SocketTrouble) as found:
        attempt()
    return found.value.kind


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 65535, 65536, 200_000])
def test_texts_of_every_length_arrive_both_ways(pair: WebSocket, size: int) -> None:
    text = "ä" * (size // 2) + "x" * (size % 2)
    pair.send(text)
    assert pair.receive(deadline=10) == text


def test_fragments_are_joined_and_pings_answered() -> None:
    pongs: list[bool] = []

    def handler(connection: ServerConnection) -> None:
        pongs.append(connection.ping().wait(10))
        connection.send(["one ", "two ", "three"])

    with answering(handler) as url:
        client = connect(url, deadline=10)
        assert client.receive(deadline=10) == "one two three" and pongs == [True]
        assert client.receive(deadline=10) is None, "the server said goodbye"
        client.abort()


def test_the_end_is_told(pair: WebSocket) -> None:
    pair.abort()
    pair.abort()
    assert kind_of(lambda: pair.send("too late")) == "closed"
    assert kind_of(lambda: pair.receive(deadline=10)) == "closed"


def test_another_thread_ends_a_wait(pair: WebSocket) -> None:
    threading.Timer(0.1, pair.abort).start()
    started = time.monotonic()
    assert kind_of(lambda: pair.receive(deadline=60)) == "closed"
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x02hi",  # binary
        b"\x80\x02hi",  # goes on without a start
        b"\x01\x01a\x81\x01b",  # two starts
        b"\xc1\x01a",  # a bit for an extension
        b"\x83\x01a",  # no such kind
        b"\x81\x82\1\2\3\4hi",  # masked by a server
        b"\x09\x01a",  # a ping in fragments
        b"\x81\x02\xff\xfe",  # not UTF-8
        b"\x81\x7f\0\0\0\x01\0\0\0\0",  # 4 GiB
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_what_breaks_the_protocol_ends_the_connection(data: bytes, is_late: bool) -> None:
    with raw(data, shakes_hands=True, hangs_up=True) as url:
        client = connect(url, deadline=10)
        if is_late:  # the end of the connection is noticed before anything of it is read
            wait_for_the_end(client)
        assert kind_of(lambda: client.receive(deadline=10)) == "protocol"
        assert kind_of(lambda: client.send("more")) in ("closed", "protocol")
        client.abort()


def test_a_server_that_breaks_it_and_does_not_hang_up_is_not_merely_late() -> None:
    with raw(b"\xc1\x01a", shakes_hands=True) as url:
        client = connect(url, deadline=10)
        assert kind_of(lambda: client.receive(deadline=1)) == "protocol"
        client.abort()


def test_a_text_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_BYTES", 10)
    for texts in ("x" * 11, ["123456", "123456"]):
        with answering(lambda connection, texts=texts: connection.send(texts)) as url:
            client = connect(url, deadline=10)
            with pytest.raises(SocketTrouble, match="more than 10 bytes") as found:
                client.receive(deadline=10)
            assert found.value.kind == "protocol"
            client.abort()


def test_silence_and_a_dropped_connection_have_kinds(pair: WebSocket) -> None:
    assert kind_of(lambda: pair.receive(deadline=0.05)) == "timeout"
    with raw(b"\x81\x05he", shakes_hands=True) as url:
        client = connect(url, deadline=10)
    assert kind_of(lambda: client.receive(deadline=10)) == "closed"
    client.abort()


@pytest.mark.slow
def test_a_server_that_does_not_read_does_not_hold_up_for_ever() -> None:
    with raw(b"", shakes_hands=True) as url:
        client = connect(url, deadline=0.5)
        started = time.monotonic()
        assert kind_of(lambda: client.send("x" * (32 << 20))) == "timeout"
        assert time.monotonic() - started < 30
        client.abort()


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refused", "HTTP status 403 instead of a WebSocket"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "unavailable", "HTTP status 503"),
        (b"HTTP/1.1 302 Found\r\nLocation: /other\r\n\r\n", "refused", "HTTP status 302"),
        (b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/ws\r\n\r\n", "refused", "HTTP status 307"),
        (b"HTTP/1.1 101 Yes\r\nSec-WebSocket-Accept: wrong\r\n\r\n", "protocol", "a handshake"),
        (b"garbage\r\n\r\n", "unreachable", ""),
        (b"", "unreachable", ""),
    ],
)
def test_a_server_that_opens_no_websocket(answer: bytes, kind: str, told: str) -> None:
    with raw(answer) as url, pytest.raises(SocketTrouble) as found:
        connect(url, deadline=10)
    assert found.value.kind == kind and told in found.value.got


def test_no_server_and_a_silent_one() -> None:
    door = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{door.getsockname()[1]}/ws"
    assert kind_of(lambda: connect(url, deadline=0.05)) == "timeout"
    door.close()
    assert kind_of(lambda: connect(url, deadline=10)) == "unreachable"


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with answering(echo) as url:
        client = connect(url, deadline=10)
        client.send("a")
        assert client.receive(deadline=10) == "a"
        client.abort()


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(
        MissingExtra,
        match=r'websockets: it is not installed; in a clone of quintain: pip install -e "\.\[openenv\]"',
    ):
        connect("http://127.0.0.1:9/ws", deadline=1)
